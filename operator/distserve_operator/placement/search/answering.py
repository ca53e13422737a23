"""From a question to a plan: search both kinds of fleet, verify the finalists, choose, explain."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import chain, islice
from typing import Final

from distserve_operator.placement.answer import Candidate, Counted, Plan
from distserve_operator.placement.question import Affinity, FiniteWindow, Kind, Question
from distserve_operator.placement.rates import PER_DEVICE, STEP, Ladder, level_below
from distserve_operator.placement.search import explaining, joint, refusing
from distserve_operator.placement.search.cells import (
    bounded,
    cells_of,
    copies,
    divided,
    have_room,
    narrowed,
    per_device,
    repeated,
)
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.fewest import by_devices
from distserve_operator.placement.search.paper import largest_that_fits, paper_rule
from distserve_operator.placement.search.racing import Finalist, Winner, race, simplicity
from distserve_operator.placement.search.spaces import shapes
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Colocated, Placement, smaller
from distserve_operator.placement.workload.path import Path

RUNNERS_UP: Final = 1  # measured besides the best of each kind
STEADY: Final = 3  # fleets that hold a rate with the fewest devices, among which the best is looked for
MOST_SIZES: Final = 12
ROUNDS: Final = 5  # of searches without the finalists of those before
SPARE: Final = (2, 4)  # times the devices that the bounds call for; more where fewer did not do
FAR: Final = (16, 64)  # the same, where all devices are known to hold the rate
MOST: Final = 128  # devices of a cell: the search never looks at more at once
KINDS: Final[tuple[Kind, ...]] = ("disaggregated", "colocated")  # the one with the sharper bounds first


@dataclass(slots=True)
class _Searched:
    """One kind of fleet: `finalists` are those that may be the best of all, `rival` is the best that cannot."""

    evaluator: Evaluator
    finalists: Sequence[Finalist] = ()
    rival: Finalist | None = None
    pruned: int = 0

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
        self.finalists = [*self.finalists, *(one for one in found.kept if one[1] >= least)]
        self.pruned = self.pruned or found.pruned


@dataclass(slots=True)
class _Search:
    """A question, its kinds of fleet and the fresh paths on which they meet."""

    question: Question
    kinds: list[_Searched]
    verifier: Verifier = field(init=False)
    held: float = 0.0  # a rate that all fleets that were found hold on fresh paths

    def __post_init__(self) -> None:
        self.verifier = Verifier.of(self.question, self.kinds[0].evaluator)

    def evaluator_of(self, placement: Placement) -> Evaluator:
        """That of the kind that a placement is of."""
        return next(kind.evaluator for kind in self.kinds if kind.of(placement))


def plan(question: Question) -> Plan:
    """The placement for a question, and why. Deterministic: equal questions have equal answers."""
    some = replace(question, inventory=bounded(question.inventory, MOST))
    if not some.inventory.devices or not shapes(some):
        return refusing.nothing_fits(question)
    path = path_of(question)
    if question.rule == "paper":
        return _by_the_paper(replace(question, only="disaggregated", listed=None), path)
    if question.rate is None:
        return _best_per_device(question, path)
    if question.rate > per_device(some) * question.inventory.devices:
        return _with_most(question, path)
    cells = cells_of(some)
    if cells == 1:
        return _for_a_rate(question, path, *divided(question, cells))
    return _of_copies(question, path, question.rate, cells)


def _best_per_device(question: Question, path: Path) -> Plan:
    search = _search_of(narrowed(replace(question, rate=None)), path, PER_DEVICE)
    return _explained(search, _best(search))


def _of_copies(question: Question, path: Path, rate: float, cells: int) -> Plan:
    """Copies of the fleet with the fewest devices for one of so many parts of the rate, or of the best per device.

    What is copied does not depend on how many nodes there are, so more of them never call for more devices. Where they
    have no room for it, whatever fits is looked for.
    """
    fewest = _first_with_fewest((narrowed(replace(question, rate=rate / cells), spare) for spare in SPARE), path)
    search = _search_of(narrowed(replace(question, rate=None)), path, PER_DEVICE)
    found = None
    if fewest is not None and not _exceeds(search, rate / _devices(fewest, rate)):
        found = _copied(question, *fewest, rate)
    if found is not None:
        return found
    best = _best(search)
    pairs = [fewest, None if best is None or best.level is None else (search, best)]
    ordered = sorted((pair for pair in pairs if pair is not None), key=lambda pair: _devices(pair, rate))
    found = _copied(question, *ordered[0], rate) if ordered else None
    return found or _of_what_fits(question, path, rate, cells, ordered[1:])


def _of_what_fits(
    question: Question, path: Path, rate: float, cells: int, found: Sequence[tuple[_Search, Winner]]
) -> Plan:
    """The fewest devices of copies that were found and of parts of all nodes; the most, if none holds the rate."""
    parted = _for_a_rate(question, path, *divided(question, cells))
    plans = [parted, *(plan for pair in found if (plan := _copied(question, *pair, rate)) is not None)]
    feasible = [plan for plan in plans if plan.feasible and plan.chosen is not None]
    return min(feasible, key=lambda plan: plan.chosen.placement.devices if plan.chosen else 0, default=parted)


def _devices(found: tuple[_Search, Winner], rate: float) -> int:
    """What copies that hold a rate take together."""
    search, winner = found
    return winner.placement.devices * _copies(search, winner.placement, _goodput(search, winner), rate)


def _goodput(search: _Search, winner: Winner) -> float:
    level = -1 if winner.level is None else winner.level
    return max(search.held, search.verifier.evaluator.ladder.rate(winner.placement, level))


def _exceeds(search: _Search, rate: float) -> bool:
    """Whether some fleet holds more than so much per device on fresh paths."""
    level, within = level_below(rate) + 1, joint.margin(search.question.slo)
    kept = (joint.best(kind.evaluator, level, within=within).kept for kind in search.kinds)
    near = (placement for some in kept for placement, _ in some)
    return any(search.verifier.holds(one, search.verifier.evaluator.ladder.rate(one, level)) for one in near)


def _copied(question: Question, search: _Search, winner: Winner, rate: float) -> Plan | None:
    """Copies of the winner, or of another that takes fewer devices in copies; None: there is no room for them."""
    chosen, others = _candidates(search, winner)
    numbers = {chosen: _copies(search, chosen.placement, chosen.goodput, rate)}
    numbers |= {one: copies(rate, one.goodput) for one in others}
    devices = {one: number * one.placement.devices for one, number in numbers.items()}
    for one in sorted((one for one in numbers if devices[one] <= devices[chosen]), key=lambda one: devices[one]):
        if have_room(question, search.question, one.placement, numbers[one]):
            rest, held = [other for other in numbers if other is not one], rate / numbers[one]
            return repeated(question, _plan(search, one.at_least(held), rest, held), numbers[one])
    return None


def _copies(search: _Search, placement: Placement, goodput: float, rate: float) -> int:
    """The fewest copies each of which holds its part of a rate; a step above `goodput` is known not to be held."""
    least, most = copies(rate, goodput * STEP), copies(rate, goodput)
    while least < most:
        middle = (least + most) // 2
        if search.verifier.holds(placement, rate / middle):
            most = middle
        else:
            least = middle + 1
    return most


def _for_a_rate(question: Question, path: Path, cells: int, cell: Question) -> Plan:
    """The fewest devices that hold the rate, else the most that all hold."""
    few, more = ({part.inventory: part for part in (narrowed(cell, spare) for spare in some)} for some in (SPARE, FAR))
    found = _first_with_fewest(few.values(), path)
    if found is not None:
        return _in_parts(question, *found, cells)
    most = _with_most(question, path)
    if most.feasible:
        found = _first_with_fewest((part for part in more.values() if part.inventory not in few), path)
    return most if found is None else _in_parts(question, *found, cells)


def _in_parts(question: Question, search: _Search, winner: Winner, cells: int) -> Plan:
    """A fleet of so many cells, fewer where each holds more than its part."""
    if question.rate is None or cells == 1:
        return _explained(search, winner, search.question.rate)
    found = _copied(question, search, winner, question.rate)
    assert found is not None  # as many as there are parts have room
    return found


def _first_with_fewest(parts: Iterable[Question], path: Path) -> tuple[_Search, Winner] | None:
    return next((found for part in parts if (found := _with_fewest(part, path)) is not None), None)


def _with_fewest(question: Question, path: Path) -> tuple[_Search, Winner] | None:
    """The fleet of one cell with the fewest devices that holds its rate; None: none is found."""
    search = _search_of(question, path, PER_DEVICE)
    winner = None if question.rate is None else _fewest(search, question.rate)
    return None if winner is None else (search, winner)


def _with_most(question: Question, path: Path) -> Plan:
    """The fleet that holds the highest rate; how it is cut into cells does not depend on the rate asked for."""
    room = narrowed(replace(question, rate=None)).inventory.devices
    cells, cell = divided(question, question.inventory.devices // room)
    whole = _search_of(cell, path, Ladder(cell.inventory.devices))
    return repeated(question, _explained(whole, _best(whole)), cells)


def _search_of(question: Question, path: Path, ladder: Ladder) -> _Search:
    evaluator = Evaluator(question, path, ladder)
    return _Search(question, [_Searched(evaluator.of_kind(kind)) for kind in _kinds(question)])


def _kinds(question: Question) -> Sequence[Kind]:
    """The kind that is likelier to win comes first; the other one then has a level to reach."""
    if question.only is not None:
        return (question.only,)
    crossing = question.affinity is Affinity.HIGH and question.inventory.nodes > 1
    return KINDS[::-1] if crossing else KINDS


def _best(search: _Search) -> Winner | None:
    """The highest level of all fleets, searched again where fresh paths show the search to have been far from it."""
    winner: Winner | None = None
    tested: frozenset[Placement] = frozenset()
    margin = joint.margin(search.question.slo)
    for _ in range(ROUNDS):
        level = -1 if winner is None or winner.level is None else winner.level
        finalists = _finalists(search, level, tested, margin)
        if not finalists:
            break
        tested |= {placement for placement, _ in finalists}
        expected = max(held for _, held in finalists)
        if winner is not None:
            finalists.append((winner.placement, level))
        winner = race(search.verifier, finalists)
        if winner.level is None:
            continue
        astray = max(_astray(search, winner), margin)
        if winner.level >= expected - margin and astray == margin:
            break
        margin = astray
    return _of_any_size(search, winner)


def _of_any_size(search: _Search, winner: Winner | None) -> Winner | None:
    """The best of the winner and fleets of the same proportions: the search looks at few sizes of each."""
    if winner is None or winner.level is None or search.kinds[0].evaluator.ladder.devices is not None:
        return winner
    level = winner.level
    sizes = [(one, level) for one in islice(smaller(winner.placement), MOST_SIZES)]
    return race(search.verifier, [(winner.placement, level), *sizes])


def _astray(search: _Search, winner: Winner) -> int:
    """Levels by which the search may be wrong, as the best of the other kind shows."""
    levels = [
        search.verifier.astray(winner.placement, winner.level, placement, level)
        for placement, near in (kind.rival for kind in search.kinds if kind.rival is not None)
        if winner.level is not None and (level := search.verifier.level(placement, near)) is not None
    ]
    return max(levels, default=0)


def _finalists(search: _Search, level: int, tested: frozenset[Placement], margin: int) -> list[Finalist]:
    """Fleets within `margin` of the best of all, and the best of each kind, but for those `tested`.

    Another one is known to hold `level`.
    """
    found = []
    for kind in search.kinds:
        found.append(joint.best(kind.evaluator, level, tested, margin))
        level = max([level, *(held for _, held in found[-1].kept)])
    for kind, new in zip(search.kinds, found, strict=True):
        kind.take(new, level - margin)
        if kind.rival is None:
            kind.rival = next(iter(new.kept), None) or joint.one_of_the_best(kind.evaluator)
    near = [one for new in found for one in new.kept if one[1] >= level - margin]
    rivals = [kind.rival for kind in search.kinds if kind.rival is not None and kind.rival[0] not in tested]
    return [*near, *(rival for rival in rivals if rival not in near)]


def _fewest(search: _Search, rate: float) -> Winner | None:
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
    """Fleets with the fewest devices that still hold `rate` on fresh paths."""
    for same in by_devices(evaluator, rate):
        ordered = sorted(same, key=lambda placement: (-evaluator.upper(placement), simplicity(placement)))
        steady = list(islice((one for one in ordered if verifier.holds(one, rate)), STEADY))
        if steady:
            return sorted((_expected(evaluator, one, rate) for one in steady), key=lambda one: -one[1])
    return []


def _expected(evaluator: Evaluator, placement: Placement, rate: float) -> Finalist:
    """A fleet that holds `rate`, with the level that it reaches."""
    held = evaluator.ladder.level(placement, rate)
    return placement, joint.climb(lambda level: evaluator.holds(placement, level), held, held)


def _by_the_paper(question: Question, path: Path) -> Plan:
    evaluator = Evaluator(replace(question, inventory=bounded(question.inventory, MOST)), path)
    searched = _Searched(evaluator)
    search = _Search(question, [searched])
    wanted = paper_rule(evaluator)
    if wanted is None:
        return _explained(search, None)
    there_is = largest_that_fits(wanted, question.inventory)
    if there_is is None and not isinstance(question.window, FiniteWindow):
        return refusing.too_few(question, None, wanted)
    placement = there_is or wanted  # which is told for comparison with what was published
    near = evaluator.ladder.level(placement, evaluator.goodput(placement))
    searched.finalists = [(placement, near)]
    winner = race(search.verifier, searched.finalists)
    if question.rate is not None and search.verifier.holds(placement, question.rate):
        search.held = question.rate
    found = _explained(search, winner, question.rate if there_is == wanted else None)
    return found if found.feasible and there_is is not None else refusing.too_few(question, found, wanted)


def _explained(search: _Search, winner: Winner | None, held: float | None = None) -> Plan:
    """The plan for the best finalist, with the best of each kind and some that came close; `held`: see `_plan`."""
    if winner is None or winner.level is None:
        return refusing.nothing_holds(search.question, search.kinds[0].evaluator, _counted(search))
    return _plan(search, *_candidates(search, winner), held)


def _plan(search: _Search, chosen: Candidate, others: Sequence[Candidate], held: float | None) -> Plan:
    """`held`: a rate that the plan is for; else it is for the one asked for, if the goodput reaches it."""
    asked = search.question if held is None else replace(search.question, rate=held)
    feasible = held is not None or asked.rate is None or chosen.goodput >= asked.rate
    evaluator = search.evaluator_of(chosen.placement)
    return explaining.explain(asked, evaluator, search.verifier, chosen, others, _counted(search), feasible)


def _candidates(search: _Search, winner: Winner) -> tuple[Candidate, list[Candidate]]:
    """The winner and others as measured on fresh paths; all hold the rate that fleets were searched for."""
    chosen = search.verifier.measure(winner.placement, winner.level)
    others = [_measured(search.verifier, *one) for one in _others(search, winner)]
    return chosen.at_least(search.held), [one.at_least(search.held) for one in others if one.goodput > 0]


def _others(search: _Search, winner: Winner) -> list[Finalist]:
    """The best of each kind, then those that the search liked next; as many as are asked for, if there are."""
    close = sorted((one for kind in search.kinds for one in kind.finalists), key=lambda one: -one[1])
    bests = [kind.best for kind in search.kinds if kind.best is not None]
    found = dict(one for one in [*bests, *close] if one[0] != winner.placement)
    wanted = max(len(search.kinds) - 1 + RUNNERS_UP, (search.question.listed or 0) - 1)
    if wanted > len(found):
        found |= dict(islice(_more(search, {winner.placement, *found}), wanted - len(found)))
    return list(found.items())[:wanted]


def _more(search: _Search, known: set[Placement]) -> Iterator[Finalist]:
    """Candidates of all kinds but those known: that hold the rate, fewest devices first, or the next best."""
    if search.held:
        each = (chain.from_iterable(by_devices(kind.evaluator, search.held)) for kind in search.kinds)
        for placement in merge(*each, key=lambda one: one.devices):
            if placement not in known and search.verifier.holds(placement, search.held):
                yield _expected(search.verifier.evaluator, placement, search.held)
        return
    while True:
        near = [one for kind in search.kinds for one in joint.best(kind.evaluator, without=frozenset(known)).kept]
        if not near:
            return
        known = known | {placement for placement, _ in near}
        yield from sorted(near, key=lambda one: -one[1])


def _measured(verifier: Verifier, placement: Placement, near: int) -> Candidate:
    return verifier.measure(placement, verifier.level(placement, near))


def _counted(search: _Search) -> Counted:
    return Counted(
        len({placement for kind in search.kinds for placement in kind.evaluator.seen}),
        sum(kind.pruned for kind in search.kinds),
        sum(kind.evaluator.simulations for kind in search.kinds),
    )
