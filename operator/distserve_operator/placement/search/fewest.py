"""The fewest devices that hold a rate: counts of all families in order of devices, each reached from a smaller one."""

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Final

from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.idling import meets_when_idle
from distserve_operator.placement.search.spaces import LARGEST_POOL, Anywhere, Counts, Family, families
from distserve_operator.placement.shape import Disaggregated, Placement

MOST_LOOKED: Final = 10_000  # candidates: a rate for which none of them is found is planned in parts


def by_devices(evaluator: Evaluator, rate: float) -> Iterator[tuple[Placement, ...]]:
    """Candidates that hold `rate`: all with the fewest devices first, then all with the next number that has some.

    It ends after `MOST_LOOKED` of them, whether they hold it or not.
    """
    lattice = _Lattice(evaluator, rate)
    holding: list[Placement] = []
    while lattice.queue and lattice.taken < MOST_LOOKED:
        family, counts = lattice.take()
        placement = family.at(counts)
        if holding and placement.devices > holding[0].devices:
            yield tuple(holding)
            holding = []
        if isinstance(placement, Disaggregated) and not evaluator.prefill_holds(placement.prefill, rate):
            lattice.consider(family, (counts[0] + 1, *counts[1:]))
            continue
        if evaluator.passes(placement, rate):
            holding.append(placement)
        for place in range(len(counts)):
            lattice.consider(family, tuple(count + (place == other) for other, count in enumerate(counts)))
    if holding:
        yield tuple(holding)


class _Lattice:
    """Counts of all families by devices, each reached from a smaller one."""

    def __init__(self, evaluator: Evaluator, rate: float) -> None:
        self._evaluator = evaluator
        self._met: set[Placement] = set()
        self._numbers = itertools.count()
        self.taken = 0
        self.queue: list[tuple[int, float, int, Family, Counts]] = []
        for family in families(evaluator.question):
            least = _least_counts(evaluator, family, rate)
            if least is not None and meets_when_idle(evaluator, family):
                self.consider(family, least)

    def consider(self, family: Family, counts: Counts) -> None:
        """Queue these counts if they are new and the nodes have room."""
        placement = family.at(counts)
        fits = max(counts) <= LARGEST_POOL and family.fits(counts, self._evaluator.question.inventory)
        if fits and placement not in self._met:
            self._met.add(placement)
            upper = self._evaluator.upper(placement)
            heapq.heappush(self.queue, (placement.devices, -upper, next(self._numbers), family, counts))

    def take(self) -> tuple[Family, Counts]:
        """The smallest counts; of equal ones those with the highest bound."""
        self.taken += 1
        self._evaluator.looks_at(self.taken)
        *_, family, counts = heapq.heappop(self.queue)
        return family, counts


def _least_counts(evaluator: Evaluator, family: Family, rate: float) -> Counts | None:
    """The smallest counts whose bounds reach `rate`; None when no count does."""
    if isinstance(family, Anywhere):
        rates = [evaluator.prefill_upper(family.prefill), evaluator.decode_upper(family.decode)]
    else:
        rates = [evaluator.upper(family.at((1,)))]
    if min(rates) <= 0:
        return None
    return tuple(max(1, math.ceil(rate / one)) for one in rates)
