"""Parallelism and counts: what the search chooses."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Parallelism of one instance: `tp` devices share a layer, the layers are cut into `pp` stages."""

    tp: int
    pp: int

    @property
    def devices(self) -> int:
        """Devices of one instance."""
        return self.tp * self.pp

    def __str__(self) -> str:
        return f"TP{self.tp}PP{self.pp}" if self.pp > 1 else f"TP{self.tp}"


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """Instances of one shape behind one dispatcher."""

    shape: Shape
    replicas: int

    @property
    def devices(self) -> int:
        """Devices of all instances."""
        return self.shape.devices * self.replicas

    def __str__(self) -> str:
        return f"{self.replicas}x{self.shape}"


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Prefill and decode on instances of their own.

    The pools are cut into `units` equal parts; KV moves only inside a unit. With `segments` (Algorithm 2) the same
    segment of a unit's prefill and decode stages shares one node; None (Algorithm 1): instances are anywhere, KV
    crosses nodes.
    """

    prefill: Pool
    decode: Pool
    units: int = 1
    segments: int | None = None

    @property
    def devices(self) -> int:
        """Devices of the whole fleet."""
        return self.prefill.devices + self.decode.devices

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All of its instances."""
        return self.prefill, self.decode

    def __str__(self) -> str:
        return f"{self.prefill} -> {self.decode}"


@dataclass(frozen=True, slots=True)
class Colocated:
    """Both phases on the same instances. `chunk` is the token budget of a mixed step; None: prefill goes first."""

    pool: Pool
    chunk: int | None = None

    @property
    def devices(self) -> int:
        """Devices of the whole fleet."""
        return self.pool.devices

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All of its instances."""
        return (self.pool,)

    def __str__(self) -> str:
        return f"{self.pool} colocated" + ("" if self.chunk is None else f", chunks of {self.chunk}")


Placement = Disaggregated | Colocated


def proportions(placement: Placement) -> Hashable:
    """What is left of a placement without its size; fleets with equal ones have a common measure."""
    if isinstance(placement, Colocated):
        return placement.pool.shape, placement.chunk
    n, m, units = placement.prefill.replicas, placement.decode.replicas, placement.units
    one = _common(placement)
    return placement.prefill.shape, placement.decode.shape, n // one, m // one, n // units, placement.segments


def alone(placement: Placement) -> Placement:
    """One instance of each phase, of the same shapes."""
    if isinstance(placement, Colocated):
        return replace(placement, pool=Pool(placement.pool.shape, 1))
    prefill, decode = (Pool(pool.shape, 1) for pool in (placement.prefill, placement.decode))
    return Disaggregated(prefill, decode, segments=placement.segments)


def smaller(placement: Placement) -> Iterator[Placement]:
    """Fleets of the same proportions, the largest first."""
    if isinstance(placement, Colocated):
        for replicas in range(placement.pool.replicas - 1, 0, -1):
            yield replace(placement, pool=replace(placement.pool, replicas=replicas))
        return
    parts = placement.units if placement.segments is not None else _common(placement)
    prefill, decode = placement.prefill.replicas // parts, placement.decode.replicas // parts
    for kept in range(parts - 1, 0, -1):
        yield Disaggregated(
            replace(placement.prefill, replicas=prefill * kept),
            replace(placement.decode, replicas=decode * kept),
            kept if placement.segments is not None else placement.units,
            placement.segments,
        )


def _common(placement: Disaggregated) -> int:
    return math.gcd(placement.prefill.replicas, placement.decode.replicas)
