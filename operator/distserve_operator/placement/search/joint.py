"""Shapes and counts chosen together: candidates by what they could reach at best, simulated until none left can win.

The order makes pruning safe: a candidate is dropped unsimulated only when its upper bound lies below what another one
has reached, or when its prefill phase alone already fails.
"""

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from distserve_operator.placement.rates import LOWEST
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import (
    LARGEST_POOL,
    Anywhere,
    Counts,
    Family,
    counts_of,
    families,
)
from distserve_operator.placement.shape import Disaggregated, Placement

MARGIN: Final = 0.03  # candidates that close to the best are kept for verification


@dataclass(frozen=True, slots=True)
class Found:
    """Candidates that may be the best, best first; how many placements and whole families a bound ruled out."""

    kept: tuple[Placement, ...]
    pruned: int


@dataclass(order=True, slots=True)
class _Entry:
    rank: tuple[float, ...]
    number: int
    item: Family | Placement = field(compare=False)
    refined: bool = field(default=False, compare=False)


def best_per_device(evaluator: Evaluator) -> Found:
    """The candidates whose goodput per device is within `MARGIN` of the best."""
    numbers = itertools.count()
    queue = [_Entry((-_ideal(evaluator, one), 0.0), next(numbers), one) for one in families(evaluator.question)]
    heapq.heapify(queue)
    reached: dict[Placement, float] = {}
    best, pruned = 0.0, 0
    while queue and -queue[0].rank[0] >= best * (1 - MARGIN):
        entry = heapq.heappop(queue)
        if not isinstance(entry.item, Placement):
            for counts in counts_of(entry.item, evaluator.question.inventory):
                placement = entry.item.at(counts)
                pruned += 1
                bound = evaluator.upper(placement) / placement.devices
                heapq.heappush(queue, _Entry((-bound, -float(placement.devices)), next(numbers), placement))
            continue
        target = max(LOWEST, best * (1 - MARGIN) * entry.item.devices)
        if isinstance(entry.item, Disaggregated) and not evaluator.prefill_holds(entry.item.prefill, target):
            continue
        if isinstance(entry.item, Disaggregated) and not entry.refined:
            heapq.heappush(queue, _refined(evaluator, entry, entry.item))
        elif evaluator.passes(entry.item, target):
            reached[entry.item] = evaluator.goodput(entry.item) / entry.item.devices
            best = max(best, reached[entry.item])
    kept = [placement for placement in reached if reached[placement] >= best * (1 - MARGIN) and best > 0]
    unopened = sum(1 for entry in queue if not isinstance(entry.item, Placement))
    return Found(tuple(sorted(kept, key=lambda p: -reached[p])), pruned - len(evaluator.seen) + unopened)


def by_devices(evaluator: Evaluator, rate: float) -> Iterator[tuple[Placement, ...]]:
    """Candidates that hold `rate`: all with the fewest devices first, then all with the next number that has some."""
    lattice = _Lattice(evaluator, rate)
    holding: list[Placement] = []
    while lattice.queue:
        family, counts = lattice.take()
        placement = family.at(counts)
        if holding and placement.devices > holding[0].devices:
            yield tuple(holding)
            holding = []
        if isinstance(placement, Disaggregated) and not evaluator.prefill_passes(placement.prefill, rate):
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
        self.queue: list[tuple[int, float, int, Family, Counts]] = []
        for family in families(evaluator.question):
            least = _least_counts(evaluator, family, rate)
            if least is not None:
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
        *_, family, counts = heapq.heappop(self.queue)
        return family, counts


def _ideal(evaluator: Evaluator, family: Family) -> float:
    """No count of the family has a higher goodput per device."""
    if not isinstance(family, Anywhere):
        one = family.at((1,))
        return evaluator.upper(one) / one.devices
    prefill, decode = evaluator.prefill_upper(family.prefill), evaluator.decode_upper(family.decode)
    if prefill <= 0 or decode <= 0:
        return 0.0
    return 1 / (family.prefill.devices / prefill + family.decode.devices / decode)


def _least_counts(evaluator: Evaluator, family: Family, rate: float) -> Counts | None:
    """The smallest counts whose bounds reach `rate`; None when no count does."""
    if isinstance(family, Anywhere):
        rates = [evaluator.prefill_upper(family.prefill), evaluator.decode_upper(family.decode)]
    else:
        rates = [evaluator.upper(family.at((1,)))]
    if min(rates) <= 0:
        return None
    return tuple(max(1, math.ceil(rate / one)) for one in rates)


def _refined(evaluator: Evaluator, entry: _Entry, placement: Disaggregated) -> _Entry:
    """The same candidate with a bound that knows how its prefill phase does alone."""
    bound = evaluator.prefill_goodput(placement.prefill) / placement.devices
    return replace(entry, rank=(max(entry.rank[0], -bound), *entry.rank[1:]), refined=True)
