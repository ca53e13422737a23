"""Shapes and counts chosen together: candidates by what they could reach at best, simulated until none left can win.

The order makes pruning safe: a candidate is dropped unsimulated only when its upper bound lies below what another one
has reached, or when one of its phases alone already fails.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from distserve_operator.placement.rates import LEVELS, between, rate_at
from distserve_operator.placement.search.evaluating import Evaluator, limit
from distserve_operator.placement.search.idling import meets_when_idle
from distserve_operator.placement.search.spaces import Anywhere, Family, counts_of, families
from distserve_operator.placement.shape import Disaggregated, Placement, alone, proportions
from distserve_operator.placement.slo import Slo

MARGIN: Final = 4  # levels below the best, within which candidates are kept for verification at 90 % attainment
WIDEST: Final = 12
_ROUGH: Final = 1.5  # bounds of colocated fleets tell apart only what differs by this


Found = tuple[tuple[Placement, int], ...]  # candidates with the level that each is known to hold, best first


@dataclass(order=True, slots=True)
class _Entry:
    rank: tuple[float, ...]  # the bound first, negative
    number: int
    item: Family | Placement = field(compare=False)
    refined: int = field(default=0, compare=False)  # phases whose own limits are in the bound


_Phase = Callable[[Evaluator, Disaggregated], Callable[[float], bool]]
_PHASES: Final[tuple[_Phase, ...]] = (
    lambda evaluator, fleet: lambda rate: evaluator.prefill_holds(fleet.prefill, rate),
    lambda evaluator, fleet: lambda rate: evaluator.decode_holds(fleet.decode, rate),
)


def best(
    evaluator: Evaluator,
    level: int = -1,
    without: frozenset[Placement] = frozenset(),
    within: int = MARGIN,
    hopeless: frozenset[Placement] = frozenset(),
) -> Found:
    """Candidates `within` so many levels of the best, or of the `level` that others hold.

    Some are left out, and all whose instances are those of a `hopeless` one, with one of each phase.
    """
    return _Search(evaluator, level, within, without, hopeless).run()


def margin(slo: Slo) -> int:
    """Levels below the best, within which candidates are kept: the fewer may fail, the less a run can tell."""
    share = max(1 - slo.attainment, 1e-3)
    return min(WIDEST, max(MARGIN, math.ceil(MARGIN * math.sqrt(0.1 / share))))


def one_of_the_best(evaluator: Evaluator) -> tuple[Placement, int] | None:
    """One that no other exceeds, with the level that it holds."""
    return next(iter(_Search(evaluator, -1, -1).run()), None)


class _Search:
    def __init__(
        self,
        evaluator: Evaluator,
        level: int,
        margin: int,
        without: frozenset[Placement] = frozenset(),
        hopeless: frozenset[Placement] = frozenset(),
    ) -> None:
        self._evaluator = evaluator
        self._without = without
        self._hopeless = hopeless
        self._ladder = evaluator.ladder
        self._best = level
        self._margin = margin  # levels by which a candidate may stay behind the best; negative: has to exceed it
        self._opened = 0  # placements that were looked at, by their bounds at least
        self._numbers = itertools.count()
        self._held: dict[Placement, int] = {}
        self._tried: dict[Hashable, int] = {}  # devices of the last fleet that was simulated, by proportions
        bounds = ((self._bound(one), one) for one in families(evaluator.question))
        self._queue = [_Entry((-bound, 0.0), next(self._numbers), one) for bound, one in bounds if bound > 0]
        heapq.heapify(self._queue)

    def run(self) -> Found:
        """Until nothing left can be as good as it has to be."""
        while self._queue and -self._queue[0].rank[0] >= rate_at(self._needed):
            entry = heapq.heappop(self._queue)
            if isinstance(entry.item, Placement):
                self._try(entry, entry.item)
            else:
                self._open(entry.item)
        least = min(self._needed, self._best)
        kept = [(one, at) for one, at in self._held.items() if at >= least or self._evaluator.holds(one, least)]
        unopened = sum(1 for entry in self._queue if not isinstance(entry.item, Placement))
        self._evaluator.looks_at(self._opened + unopened)
        return tuple(sorted(kept, key=lambda pair: (-pair[1], pair[0].devices)))

    @property
    def _needed(self) -> int:
        """The level that a candidate has to hold."""
        return max(0, self._best - self._margin)

    def _open(self, family: Family) -> None:
        for counts in counts_of(family, self._evaluator.question.inventory):
            placement = family.at(counts)
            self._opened += 1
            if self._hopeless and alone(placement) in self._hopeless:
                return
            bound = self._evaluator.upper(placement) / self._ladder.shares(placement)
            if bound >= rate_at(self._needed):
                heapq.heappush(self._queue, _Entry(_rank(placement, bound), next(self._numbers), placement))

    def _try(self, entry: _Entry, placement: Placement) -> None:
        rate = self._ladder.rate(placement, self._needed)
        if placement in self._without or rate > self._evaluator.upper(placement) or self._is_dominated(placement):
            return
        if isinstance(placement, Disaggregated) and entry.refined < len(_PHASES):
            refined = self._refined(entry, placement, _PHASES[entry.refined])
            if refined is not None:
                heapq.heappush(self._queue, refined)
            return
        self._tried[proportions(placement)] = placement.devices
        if not self._evaluator.holds(placement, self._needed):
            return
        self._held[placement] = climb(self._evaluator, placement, self._needed, max(self._needed, self._best))
        self._best = max(self._best, self._held[placement])

    def _is_dominated(self, placement: Placement) -> bool:
        """Whether a fleet of the same proportions was tried that is larger by less than half, if a link may matter.

        Pooling seldom hurts, and ties go to the larger one.
        """
        tried = self._tried.get(proportions(placement), 0)
        alone = tried / 2 if isinstance(placement, Disaggregated) else 0.0
        return self._ladder.devices is None and alone < placement.devices <= tried

    def _refined(self, entry: _Entry, placement: Disaggregated, phase: _Phase) -> _Entry | None:
        """The same candidate with a bound that knows how one phase does alone; None: not as well as it has to."""
        shares = self._ladder.shares(placement)
        least = self._ladder.rate(placement, self._needed)
        holds = phase(self._evaluator, placement)
        if not holds(least):
            return None
        bound = limit(holds, least, -entry.rank[0] * shares) / shares
        return _Entry((-bound, *entry.rank[1:]), next(self._numbers), placement, entry.refined + 1)

    def _bound(self, family: Family) -> float:
        """What no count of the family exceeds; 0 where not even one idle instance of each phase meets the targets."""
        if not meets_when_idle(self._evaluator, family):
            return 0.0
        return self._evaluator.once(("ideal", family), lambda: self._ideal(family))

    def _ideal(self, family: Family) -> float:
        """No count of the family exceeds it: goodput per device, or whatever the ladder is of."""
        evaluator = self._evaluator
        if self._ladder.devices is not None:
            every = counts_of(family, evaluator.question.inventory)
            return max((evaluator.upper(family.at(counts)) for counts in every), default=0.0) / self._ladder.devices
        if not isinstance(family, Anywhere):
            one = family.at((1,))
            return evaluator.upper(one) / one.devices
        prefill, decode = evaluator.prefill_upper(family.prefill), evaluator.decode_upper(family.decode)
        if prefill <= 0 or decode <= 0:
            return 0.0
        return 1 / (family.prefill.devices / prefill + family.decode.devices / decode)


def climb(evaluator: Evaluator, placement: Placement, held: int, low: int) -> int:
    """The highest level that a placement holds if it is above `low`, else `held`, which it is known to hold.

    Short runs say how far up it is worth to look; long ones, of which each takes as much as several short ones, are
    looked at from there down.
    """
    if not evaluator.holds(placement, low + 1):
        return held
    high = _last(lambda level: evaluator.holds_briefly(placement, level), low + 1)
    return _first(lambda level: evaluator.holds(placement, level), low + 1, high)


def _last(holds: Callable[[int], bool], low: int) -> int:
    """The last level from `low` up that is held, by strides that double; `low` is taken to be.

    It is not looked for far above the grid: a burst of few requests may be held by many devices at whatever rate.
    """
    stride = 1
    while low + stride < 1 << LEVELS and holds(low + stride):
        low += stride
        stride *= 2
    return between(holds, low, low + stride)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first level from `high` down that is held, by strides that double; `low` is taken to be."""
    stride, failed = MARGIN, high + 1
    while high > low and not holds(high):
        failed, high = high, max(low, high - stride)
        stride *= 2
    return between(holds, high, failed)


def _rank(placement: Placement, bound: float) -> tuple[float, ...]:
    """By the bound, the larger first. Those of colocated fleets are rough: of about equal ones the flat first."""
    if isinstance(placement, Disaggregated):
        return -bound, -float(placement.devices)
    rough = bound if math.isinf(bound) else _ROUGH ** math.ceil(math.log(bound) / math.log(_ROUGH))
    return -rough, float(placement.pool.shape.pp), -float(placement.devices)
