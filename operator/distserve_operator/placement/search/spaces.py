"""The fleets that could be: families of placements that differ only in counts.

A family is what is repeated: two shapes on any node (Algorithm 1), a unit inside nodes (Algorithm 2), or one shape that
serves both phases.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from distserve_operator.placement.device import Inventory
from distserve_operator.placement.memory import shape_problem
from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape

CHUNKS: Final = (None, 256, 512, 1024, 2048, 4096)  # token budgets of a mixed step; None: prefill goes first
WIDEST_PIPELINE: Final = 16
LARGEST_POOL: Final = 128  # instances that are tried for a rate
SIZES: Final = (
    *range(1, 9),
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
)  # of pools whose number is free: the larger, the more alike
IN_UNIT: Final = 8  # instances of a role in one unit inside nodes
WIDE_NODE: Final = 16  # devices, above which units with a common divisor are left out: several smaller ones do

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Counts (n, m): so many prefill and decode instances, their stages on any node with enough free devices.

    On a single node the stages of one segment cannot but share it.
    """

    prefill: Shape
    decode: Shape
    segments: int | None = None

    def at(self, counts: Counts) -> Disaggregated:
        """The placement with these counts."""
        prefill, decode = Pool(self.prefill, counts[0]), Pool(self.decode, counts[1])
        return Disaggregated(prefill, decode, segments=self.segments)

    def fits(self, counts: Counts, inventory: Inventory) -> bool:
        """Whether the nodes have room for it."""
        return _fits(((self.prefill, counts[0]), (self.decode, counts[1])), inventory)


@dataclass(frozen=True, slots=True)
class InsideNodes:
    """Counts (k,): so many units of n prefill and m decode instances whose equal segments share a node."""

    prefill: Pool
    decode: Pool
    segments: int

    def at(self, counts: Counts) -> Disaggregated:
        """The placement with these counts."""
        (units,) = counts
        prefill = Pool(self.prefill.shape, self.prefill.replicas * units)
        return Disaggregated(prefill, Pool(self.decode.shape, self.decode.replicas * units), units, self.segments)

    def fits(self, counts: Counts, inventory: Inventory) -> bool:
        """Whether the nodes have room for it."""
        (units,) = counts
        segment = (self.prefill.devices + self.decode.devices) // self.segments
        room = sum(node // segment for node in inventory.free) // self.segments
        return units <= room and units * segment * self.segments <= inventory.most


@dataclass(frozen=True, slots=True)
class Both:
    """Counts (r,): so many instances that serve both phases."""

    shape: Shape
    chunk: int | None

    def at(self, counts: Counts) -> Colocated:
        """The placement with these counts."""
        return Colocated(Pool(self.shape, counts[0]), self.chunk)

    def fits(self, counts: Counts, inventory: Inventory) -> bool:
        """Whether the nodes have room for it."""
        return _fits(((self.shape, counts[0]),), inventory)


Family = Anywhere | InsideNodes | Both


def families(question: Question) -> Iterator[Family]:
    """Every family that the question allows."""
    fitting = shapes(question)
    if question.only != "disaggregated":
        yield from (Both(shape, chunk) for shape in fitting for chunk in CHUNKS)
    if question.only == "colocated":
        return
    segments = 1 if question.inventory.one_node else None
    if question.affinity is not Affinity.LOW or segments:
        yield from (Anywhere(prefill, decode, segments) for prefill in fitting for decode in fitting)
    if question.affinity is not Affinity.HIGH and not segments:
        yield from units(question)


def shapes(question: Question) -> list[Shape]:
    """Shapes of one instance that fit the device's memory and the nodes, and for which there is a latency law."""
    deepest = min(question.model.layers, question.deepest or WIDEST_PIPELINE, WIDEST_PIPELINE)
    every = (Shape(tp, pp) for tp in sorted(question.latency.laws) for pp in range(1, deepest + 1))
    return [
        shape
        for shape in every
        if _fits(((shape, 1),), question.inventory) and shape_problem(question.model, question.device, shape) is None
    ]


def counts_of(family: Family, inventory: Inventory) -> Iterator[Counts]:
    """The counts of a family that fit, of `SIZES`."""
    if not isinstance(family, Anywhere):
        yield from ((count,) for count in SIZES if family.fits((count,), inventory))
        return
    for n in SIZES:
        for m in SIZES:
            if not family.fits((n, m), inventory):
                break
            yield n, m


def placements(question: Question) -> Iterator[Placement]:
    """Every placement, for small inventories."""
    for family in families(question):
        yield from (family.at(counts) for counts in counts_of(family, question.inventory))


def units(question: Question) -> Iterator[InsideNodes]:
    """What is repeated where KV stays inside nodes (Algorithm 2)."""
    fitting = shapes(question)
    widest = max(question.inventory.free, default=0)
    for segments in range(1, min(WIDEST_PIPELINE, len(question.inventory.free)) + 1):
        cut = [shape for shape in fitting if shape.pp % segments == 0]
        for prefill in cut:
            for decode in cut:
                for n, m in _ratios(widest * segments, prefill.devices, decode.devices, widest > WIDE_NODE):
                    family = InsideNodes(Pool(prefill, n), Pool(decode, m), segments)
                    if family.fits((1,), question.inventory):
                        yield family


def _ratios(devices: int, prefill: int, decode: int, coprime: bool) -> Iterator[tuple[int, int]]:
    """Numbers of prefill and decode instances that share so many devices."""
    for n in range(1, min(IN_UNIT, devices // prefill) + 1):
        for m in range(1, min(IN_UNIT, (devices - n * prefill) // decode) + 1):
            if not coprime or math.gcd(n, m) == 1:
                yield n, m


def fits(placement: Placement, inventory: Inventory) -> bool:
    """Whether the nodes have room for a placement."""
    if isinstance(placement, Colocated):
        return _fits(((placement.pool.shape, placement.pool.replicas),), inventory)
    prefill, decode, units = placement.prefill, placement.decode, placement.units
    if placement.segments is None:
        return _fits(((prefill.shape, prefill.replicas), (decode.shape, decode.replicas)), inventory)
    unit = InsideNodes(
        Pool(prefill.shape, prefill.replicas // units), Pool(decode.shape, decode.replicas // units), placement.segments
    )
    return unit.fits((units,), inventory)


def _fits(pools: tuple[tuple[Shape, int], ...], inventory: Inventory) -> bool:
    """Whether these instances, or their stages one by one, can be laid on the nodes, the widest first."""
    if sum(shape.devices * count for shape, count in pools) > inventory.devices:
        return False
    free = sorted(inventory.free, reverse=True)
    parts = [(s.devices, count) if inventory.whole else (s.tp, s.pp * count) for s, count in pools]
    for size, count in sorted(parts, reverse=True):
        left = count
        for node, devices in enumerate(free):
            taken = min(left, devices // size)
            free[node] -= taken * size
            left -= taken
        if left:
            return False
    return True
