"""The fewest devices that hold a rate: counts of all families in order of devices, each reached from a smaller one.

In steady state more instances hardly ever hold less, unless they have to share links. So where many fail, larger counts
are tried too, and when these fail those between are left out. A burst is no such thing: fewer instances that read its
prompts spread the tokens over more time.
"""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from distserve_operator.placement.question import Steady
from distserve_operator.placement.rates import between
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.idling import meets_when_idle
from distserve_operator.placement.search.racing import simplicity
from distserve_operator.placement.search.spaces import LARGEST_POOL, Anywhere, Counts, Family, families
from distserve_operator.placement.serving import link_of
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool

MOST_LOOKED: Final = 10_000  # candidates: a rate for which none of them is found is planned in parts
STRIDE: Final = 1 / 16  # share by which larger counts are tried where some fail, of 16 or more; it doubles

Holds = Callable[[Placement], bool]


def by_devices(
    evaluator: Evaluator, rate: float, near: float, holds: Holds, enough: float = math.inf
) -> Iterator[list[Placement]]:
    """Candidates that hold `rate`, by what `holds` says: those with the fewest devices, then those with the next more.

    Their bounds have to reach `rate`, and they have to hold `near` on the path of the search. Of equally many devices
    no more than `enough` are looked for, those with the highest bounds first. It ends after `MOST_LOOKED` candidates,
    whether they hold it or not.
    """
    lattice = _Lattice(evaluator, rate, near, holds)
    same: list[Placement] = []
    while lattice.queue and lattice.taken < MOST_LOOKED:
        family, counts = lattice.take()
        placement = family.at(counts)
        if same and placement.devices > same[0].devices:
            yield same
            same = []
        failing = None if len(same) >= enough else lattice.failing(family, counts)
        if failing is None and len(same) < enough:
            same.append(placement)
        for place, most in enumerate(failing or counts):
            lattice.consider(family, (*counts[:place], most + 1, *counts[place + 1 :]))
    if same:
        yield same


class _Lattice:
    """Counts of all families by devices, each reached from a smaller one."""

    def __init__(self, evaluator: Evaluator, rate: float, near: float, holds: Holds) -> None:
        self._evaluator = evaluator
        self._rate = rate
        self._near = near
        self._confirmed = holds
        self._failed: dict[Family, list[Counts]] = defaultdict(list)
        self._steady = isinstance(evaluator.question.window, Steady)
        self._least = math.inf  # devices of the smallest fleet that is known to hold the rate
        self._met: set[Placement] = set()
        self._numbers = itertools.count()
        self.taken = 0
        self.queue: list[tuple[int, float, tuple[object, ...], int, Family, Counts]] = []
        for family in families(evaluator.question):
            least = _least_counts(evaluator, family, rate)
            if least is not None and meets_when_idle(evaluator, family):
                self.consider(family, least)

    def consider(self, family: Family, counts: Counts) -> None:
        """Queue these counts if they are new and the nodes have room."""
        placement = family.at(counts)
        if self._has_room(family, counts) and placement not in self._met:
            self._met.add(placement)
            rank = placement.devices, -self._evaluator.upper(placement), simplicity(placement), next(self._numbers)
            heapq.heappush(self.queue, (*rank, family, counts))

    def take(self) -> tuple[Family, Counts]:
        """The smallest counts; of equal ones those with the highest bound."""
        self._look()
        *_, family, counts = heapq.heappop(self.queue)
        return family, counts

    def failing(self, family: Family, counts: Counts) -> Counts | None:
        """Counts up to which none holds the rate, if these do not; None: they hold it."""
        for failed in self._failed[family]:
            if all(count <= most for count, most in zip(counts, failed, strict=True)):
                return failed
        placement = family.at(counts)
        if isinstance(placement, Disaggregated) and not self._evaluator.prefill_holds(placement.prefill, self._near):
            return (self._too_few(placement.prefill), LARGEST_POOL) if isinstance(family, Anywhere) else counts
        if self._holds(placement):
            return None
        failed = self._larger(family, counts) if self._steady else counts
        if failed > counts:
            self._failed[family].append(failed)
        return failed

    def _too_few(self, prefill: Pool) -> int:
        """The most prefill instances that do not hold their target, like these."""

        def fail(replicas: int) -> bool:
            return not self._evaluator.prefill_holds(Pool(prefill.shape, replicas), self._near)

        return between(fail, prefill.replicas, LARGEST_POOL + 1)

    def _larger(self, family: Family, counts: Counts) -> Counts:
        """The largest counts on the way up that fail as these do, with links as fast."""
        failed, share, link = counts, STRIDE, self._link(family, counts)
        while (
            (more := _grown(counts, share)) > failed and self._link(family, more) >= link and self._fail(family, more)
        ):
            failed, share = more, 2 * share
        return failed

    def _fail(self, family: Family, counts: Counts) -> bool:
        """Whether these counts fail, of which that matters: there is room for them, and no smaller fleet is known."""
        placement = family.at(counts)
        if placement.devices >= self._least or not self._has_room(family, counts) or self._holds(placement):
            return False
        self._look()
        return True

    def _holds(self, placement: Placement) -> bool:
        held = (
            self._rate <= self._evaluator.upper(placement)
            and self._evaluator.passes(placement, self._near)
            and self._confirmed(placement)
        )
        if held:
            self._least = min(self._least, placement.devices)
        return held

    def _look(self) -> None:
        self.taken += 1
        self._evaluator.looks_at(self.taken)

    def _link(self, family: Family, counts: Counts) -> float:
        placement = family.at(counts)
        if isinstance(placement, Colocated):
            return math.inf
        return link_of(self._evaluator.question, placement).bytes_per_second

    def _has_room(self, family: Family, counts: Counts) -> bool:
        return max(counts) <= LARGEST_POOL and family.fits(counts, self._evaluator.question.inventory)


def _least_counts(evaluator: Evaluator, family: Family, rate: float) -> Counts | None:
    """The smallest counts whose bounds reach `rate`; None when no count does. A burst may exceed every bound."""
    if isinstance(family, Anywhere):
        rates = [evaluator.prefill_upper(family.prefill), evaluator.decode_upper(family.decode)]
    else:
        rates = [evaluator.upper(family.at((1,)))]
    if not isinstance(evaluator.question.window, Steady):
        return (1,) * len(rates)
    if min(rates) <= 0:
        return None
    return tuple(max(1, math.ceil(rate / one)) for one in rates)


def _grown(counts: Counts, share: float) -> Counts:
    return tuple(count + int(share * count) for count in counts)
