"""The paper's own rule: the best goodput per device first, then as many copies as the rate needs, rounded up.

Algorithm 1 takes each phase on its own, Algorithm 2 a unit of both inside nodes.
"""

import math
from dataclasses import dataclass, replace

from distserve_operator.placement.device import Inventory
from distserve_operator.placement.question import Affinity
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import fits, shapes, units
from distserve_operator.placement.shape import Disaggregated, Pool, Shape


@dataclass(frozen=True, slots=True)
class Ruled:
    """What the rule asks for, and the requests per second that it takes it to hold, on the path of the search."""

    placement: Disaggregated
    account: float


def algorithm_1(evaluator: Evaluator) -> Ruled | None:
    """High node affinity. None when a phase has no shape that holds its target."""
    question = evaluator.question
    fitting = shapes(question)
    prefill = _best({shape: evaluator.prefill_goodput(Pool(shape, 1)) for shape in fitting})
    decode = _best({shape: evaluator.decode_goodput(Pool(shape, 1)) for shape in fitting})
    if prefill is None or decode is None:
        return None
    reading, writing = evaluator.prefill_goodput(Pool(prefill, 1)), evaluator.decode_goodput(Pool(decode, 1))
    n, m = _copies(question.rate, reading), _copies(question.rate, writing)
    return Ruled(Disaggregated(Pool(prefill, n), Pool(decode, m)), min(n * reading, m * writing))


def algorithm_2(evaluator: Evaluator) -> Ruled | None:
    """Low node affinity: one prefill and one decode instance to a unit. None when no unit holds the targets."""
    best, most = None, 0.0
    for family in units(evaluator.question):
        if family.prefill.replicas == family.decode.replicas == 1:
            unit = family.at((1,))
            if most > 0 and not evaluator.passes(unit, most * unit.devices):
                continue
            reached = evaluator.goodput(unit) / unit.devices
            if reached > most:
                best, most = family, reached
    if best is None:
        return None
    alone = evaluator.goodput(best.at((1,)))
    copies = _copies(evaluator.question.rate, alone)
    return Ruled(best.at((copies,)), copies * alone)


def paper_rule(evaluator: Evaluator) -> Ruled | None:
    """Algorithm 1 or 2 by the affinity asked for; with Auto, 2 where it finds something."""
    match evaluator.question.affinity:
        case Affinity.HIGH:
            return algorithm_1(evaluator)
        case Affinity.LOW:
            return algorithm_2(evaluator)
        case Affinity.AUTO:
            return algorithm_2(evaluator) or algorithm_1(evaluator)


def largest_that_fits(wanted: Disaggregated, inventory: Inventory) -> Disaggregated | None:
    """Of fleets with the same proportions the largest, up to `wanted`, that the nodes have room for; None: none is."""
    copies = wanted.units if wanted.units > 1 else max(wanted.prefill.replicas, wanted.decode.replicas)
    low, high = 0, copies + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(_part(wanted, middle, copies), inventory) else (low, middle)
    return _part(wanted, low, copies) if low else None


def _part(wanted: Disaggregated, some: int, copies: int) -> Disaggregated:
    """So many of all copies, no phase without an instance."""
    prefill, decode = (math.ceil(pool.replicas * some / copies) for pool in (wanted.prefill, wanted.decode))
    return replace(
        wanted,
        prefill=Pool(wanted.prefill.shape, prefill),
        decode=Pool(wanted.decode.shape, decode),
        units=math.ceil(wanted.units * some / copies),
    )


def _copies(rate: float | None, goodput: float) -> int:
    return 1 if rate is None else math.ceil(rate / goodput)


def _best(goodputs: dict[Shape, float]) -> Shape | None:
    """The shape with the highest goodput per device; of equal ones the smallest."""
    best = max(goodputs, key=lambda shape: (goodputs[shape] / shape.devices, -shape.devices, -shape.pp), default=None)
    return best if best is not None and goodputs[best] > 0 else None
