"""The best of all fleets on fresh paths, out of both kinds, and those with the fewest devices that hold a rate."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from distserve_operator.placement.question import Affinity, Kind, Question
from distserve_operator.placement.rates import LOWEST, STEP, Ladder
from distserve_operator.placement.search import joint
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.fewest import by_devices
from distserve_operator.placement.search.racing import Finalist, Winner, race
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Colocated, Placement, alone, smaller
from distserve_operator.placement.workload.path import Path

STEADY: Final = 3  # fleets that hold a rate with the fewest devices, among which the best is looked for
MOST_SIZES: Final = 12  # of the same proportions as the best
ROUNDS: Final = 5  # of searches without the finalists of those before
KINDS: Final[tuple[Kind, ...]] = ("disaggregated", "colocated")  # the one with the sharper bounds first


@dataclass(slots=True)
class Searched:
    """One kind of fleet: `finalists` are those that may be the best of all, `rival` is the best that cannot."""

    evaluator: Evaluator
    finalists: Sequence[Finalist] = ()
    rival: Finalist | None = None

    @property
    def best(self) -> Finalist | None:
        """The one that the search liked most."""
        return self.finalists[0] if self.finalists else self.rival

    def of(self, placement: Placement) -> bool:
        """Whether a placement is of this kind; where both kinds are searched as one every placement is."""
        only = self.evaluator.question.only
        return only is None or (only == "colocated") == isinstance(placement, Colocated)

    def take(self, found: joint.Found, least: int) -> None:
        """The candidates that a search found, of those that hold the `least` level."""
        self.finalists = [*self.finalists, *(one for one in found if one[1] >= least)]


@dataclass(slots=True)
class Search:
    """A question, its kinds of fleet and the fresh paths on which they meet."""

    question: Question
    kinds: list[Searched]
    verifier: Verifier = field(init=False)
    held: float = 0.0  # a rate that all fleets that were found hold on fresh paths

    def __post_init__(self) -> None:
        self.verifier = Verifier.of(self.question, self.kinds[0].evaluator)

    def evaluator_of(self, placement: Placement) -> Evaluator:
        """That of the kind that a placement is of."""
        return next(kind.evaluator for kind in self.kinds if kind.of(placement))


def search_of(question: Question, path: Path, ladder: Ladder) -> Search:
    """A search of the kinds that a question allows; levels are those of `ladder`."""
    evaluator = Evaluator(question, path, ladder)
    return Search(question, [Searched(evaluator.of_kind(kind)) for kind in _kinds(question)])


def _kinds(question: Question) -> Sequence[Kind]:
    """The kind that is likelier to win comes first; the other one then has a level to reach."""
    if question.only is not None:
        return (question.only,)
    crossing = question.affinity is Affinity.HIGH and not question.inventory.one_node
    return KINDS[::-1] if crossing else KINDS


def best(search: Search) -> Winner | None:
    """The highest level of all fleets, searched again where fresh paths show the search to have been far from it."""
    winner: Winner | None = None
    tested: frozenset[Placement] = frozenset()
    hopeless: frozenset[Placement] = frozenset()
    margin = joint.margin(search.question.slo)
    for _ in range(ROUNDS):
        level = -1 if winner is None or winner.level is None else winner.level
        finalists = _finalists(search, level, tested, margin, hopeless)
        if not finalists:
            break
        tested |= {placement for placement, _ in finalists}
        expected = max(held for _, held in finalists)
        if winner is not None:
            finalists.append((winner.placement, level))
        winner = race(search.verifier, finalists)
        if winner.level is None:
            hopeless |= _hopeless(search, finalists)
            continue
        astray = max(_astray(search, winner), margin)
        if winner.level >= expected - margin and astray == margin:
            break
        margin = astray
    return _of_any_size(search, winner)


def _of_any_size(search: Search, winner: Winner | None) -> Winner | None:
    """The best of the winner and fleets of the same proportions: the search looks at few sizes of each."""
    if winner is None or winner.level is None or search.kinds[0].evaluator.ladder.devices is not None:
        return winner
    level = winner.level
    sizes = [(one, level) for one in islice(smaller(winner.placement), MOST_SIZES)]
    return race(search.verifier, [(winner.placement, level), *sizes])


def _astray(search: Search, winner: Winner) -> int:
    """Levels by which the search may be wrong, as the best of the other kind shows."""
    levels = [
        search.verifier.astray(winner.placement, winner.level, placement, level)
        for placement, near in (kind.rival for kind in search.kinds if kind.rival is not None)
        if winner.level is not None and (level := search.verifier.level(placement, near)) is not None
    ]
    return max(levels, default=0)


def _hopeless(search: Search, finalists: Sequence[Finalist]) -> frozenset[Placement]:
    """One instance of each phase, of finalists of which not even these hold the targets, with hardly any load."""
    each = {alone(placement) for placement, _ in finalists}
    return frozenset(one for one in each if not search.verifier.holds(one, LOWEST))


def _finalists(
    search: Search, level: int, tested: frozenset[Placement], margin: int, hopeless: frozenset[Placement]
) -> list[Finalist]:
    """Fleets within `margin` of the best of all, and the best of each kind, but for those `tested`.

    Another one is known to hold `level`.
    """
    found = []
    for kind in search.kinds:
        found.append(joint.best(kind.evaluator, level, tested, margin, hopeless))
        level = max([level, *(held for _, held in found[-1])])
    for kind, new in zip(search.kinds, found, strict=True):
        kind.take(new, level - margin)
        if kind.rival is None:
            kind.rival = next(iter(new), None) or joint.one_of_the_best(kind.evaluator)
    near = [one for new in found for one in new if one[1] >= level - margin]
    rivals = [kind.rival for kind in search.kinds if kind.rival is not None and kind.rival[0] not in tested]
    return [*near, *(rival for rival in rivals if rival not in near)]


def fewest(search: Search, rate: float) -> Winner | None:
    """The best of the fleets with the fewest devices that hold a rate, on fresh paths too; None: none does."""
    search.held = rate
    for kind in search.kinds:
        kind.finalists = _holding(kind.evaluator, search.verifier, rate)
    sizes = [kind.finalists[0][0].devices for kind in search.kinds if kind.finalists]
    if not sizes:
        return None
    for kind in search.kinds:
        kind.rival = kind.best
        if kind.finalists and kind.finalists[0][0].devices > min(sizes):
            kind.finalists = ()
    return race(search.verifier, [one for kind in search.kinds for one in kind.finalists])


def _holding(evaluator: Evaluator, verifier: Verifier, rate: float) -> list[Finalist]:
    """Fleets with the fewest devices that hold `rate` on fresh paths, and about as much on the path of the search."""
    near = rate / STEP ** joint.margin(evaluator.question.slo)
    found = by_devices(evaluator, rate, near, lambda one: verifier.holds(one, rate), STEADY)
    return sorted((expected(evaluator, one, rate) for one in next(found, [])), key=lambda one: -one[1])


def expected(evaluator: Evaluator, placement: Placement, rate: float) -> Finalist:
    """A fleet that holds `rate`, with the level that it reaches."""
    held = evaluator.ladder.level(placement, rate)
    return placement, joint.climb(evaluator, placement, held, held)
