"""Which finalist is the best: the highest level held on fresh paths, and of equal ones the simplest.

Levels are the grid of the goodput per device, so two fleets tie when they hold the same ones. What holds the highest
level depends on nothing else; hence a tighter target never raises the goodput per device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Disaggregated, Placement

Finalist = tuple[Placement, int]  # with the level at which it is expected


@dataclass(frozen=True, slots=True)
class Winner:
    """A finalist and the level that it holds; None: none that is near to what was expected."""

    placement: Placement
    level: int | None


def race(verifier: Verifier, finalists: Sequence[Finalist]) -> Winner:
    """The best of one finalist or more; each has to beat the best of those before it."""
    ordered = sorted(finalists, key=lambda one: (-one[1], simplicity(one[0])))
    placement, near = ordered[0]
    first = Winner(placement, verifier.level(placement, near))
    for finalist in ordered[1:]:
        first = _challenged(verifier, first, *finalist)
    return first


def _challenged(verifier: Verifier, best: Winner, placement: Placement, near: int) -> Winner:
    if best.level is None:
        return Winner(placement, verifier.level(placement, near))
    least = best.level + (simplicity(placement) > simplicity(best.placement))
    level = verifier.level(placement, max(near, least), least)
    return best if level is None else Winner(placement, level)


def simplicity(placement: Placement) -> tuple[object, ...]:
    """Of fleets with the same goodput per device the first is taken.

    Colocated, larger, fewer stages, narrower; of the same instances those whose KV stays inside nodes, in fewer parts.
    """
    split = isinstance(placement, Disaggregated)
    way = (placement.segments is None, placement.units) if isinstance(placement, Disaggregated) else ()
    stages, width = max(pool.shape.pp for pool in placement.pools), max(pool.shape.tp for pool in placement.pools)
    return split, -placement.devices, stages, width, str(placement), way
