"""What is told of a search: the winner as measured, the others beside it, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import chain, islice
from typing import Final

from distserve_operator.placement.answer import Candidate, Counted, Plan
from distserve_operator.placement.question import FiniteWindow
from distserve_operator.placement.search import explaining, joint, refusing
from distserve_operator.placement.search.fewest import by_devices
from distserve_operator.placement.search.paper import Ruled
from distserve_operator.placement.search.racing import Finalist, Winner, race
from distserve_operator.placement.search.searching import Search, Searched, expected
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Placement

RUNNERS_UP: Final = 1  # measured besides the best of each kind


def explained(search: Search, winner: Winner | None, held: float | None = None) -> Plan:
    """The plan for the best finalist, with the best of each kind and some that came close; `held`: see `plan_of`."""
    if winner is None or winner.level is None:
        return refusing.nothing_holds(
            search.question, search.kinds[0].evaluator, _counted(search), search.verifier.judged
        )
    return plan_of(search, *candidates(search, winner), held)


def plan_of(search: Search, chosen: Candidate, others: Sequence[Candidate], held: float | None) -> Plan:
    """`held`: a rate that the plan is for; else it is for the one asked for, if the goodput reaches it."""
    asked = search.question if held is None else replace(search.question, rate=held)
    feasible = held is not None or asked.rate is None or chosen.goodput >= asked.rate
    evaluator = search.evaluator_of(chosen.placement)
    return explaining.explain(asked, evaluator, search.verifier, chosen, others, _counted(search), feasible)


def rule_told(search: Search, ruled: Ruled, winner: Winner) -> tuple[str, ...]:
    """What the paper's rule asks for, what it makes of that itself, and what the `winner`, or a part of it, holds."""
    question, wanted = search.question, ruled.placement
    load = "" if question.rate is None else f" for {question.rate:g} req/s"
    takes = f"the paper's rule takes {wanted.devices} devices{load} ({wanted})"
    judged = search.verifier.measure(winner.placement, winner.level).at_least(search.held)
    where = "" if isinstance(question.window, FiniteWindow) else " on fresh paths"
    return (
        f"{takes}: they hold {ruled.account:.4g} req/s by its own account",
        f"{judged.placement}: its {judged.placement.devices} devices hold {judged.goodput:.4g} req/s{where}",
    )


def candidates(search: Search, winner: Winner) -> tuple[Candidate, list[Candidate]]:
    """The winner and others as measured on fresh paths; all hold the rate that fleets were searched for."""
    chosen = search.verifier.measure(winner.placement, winner.level)
    others = [_measured(search.verifier, *one) for one in _others(search, winner)]
    return chosen.at_least(search.held), [one.at_least(search.held) for one in others if one.goodput > 0]


def _others(search: Search, winner: Winner) -> list[Finalist]:
    """The best of each kind, then those that the search liked next; as many as are asked for, if there are."""
    close = sorted((one for kind in search.kinds for one in kind.finalists), key=lambda one: -one[1])
    bests = [one for kind in search.kinds if (one := _best(search, kind, winner)) is not None]
    found = dict(one for one in [*bests, *close] if one[0] != winner.placement)
    listed = (search.question.listed or 0) - 1
    if listed > len(found):
        found |= dict(islice(_more(search, {winner.placement, *found}), listed - len(found)))
    return list(found.items())[: max(len(search.kinds) - 1 + RUNNERS_UP, listed)]


def _best(search: Search, kind: Searched, winner: Winner) -> Finalist | None:
    """The best of a kind: of the one that lost, the finalist that does best on the paths on which the winner won."""
    if kind.of(winner.placement) or not kind.finalists:
        return kind.best
    first = race(search.verifier, kind.finalists)
    return kind.best if first.level is None else (first.placement, first.level)


def _more(search: Search, known: set[Placement]) -> Iterator[Finalist]:
    """Candidates of all kinds but those known: that hold the rate, fewest devices first, or the next best."""
    if search.held:
        each = (chain.from_iterable(_holding(search, kind)) for kind in search.kinds)
        for placement in merge(*each, key=lambda one: one.devices):
            if placement not in known:
                yield expected(search.verifier.evaluator, placement, search.held)
        return
    while True:
        near = [one for kind in search.kinds for one in joint.best(kind.evaluator, without=frozenset(known))]
        if not near:
            return
        known = known | {placement for placement, _ in near}
        yield from sorted(near, key=lambda one: -one[1])


def _holding(search: Search, kind: Searched) -> Iterator[list[Placement]]:
    """Candidates of a kind that hold the rate, by devices; of equally many devices no more than are to be listed."""
    rate, enough = search.held, search.question.listed or 1
    return by_devices(kind.evaluator, rate, rate, lambda one: search.verifier.holds(one, rate), enough)


def _measured(verifier: Verifier, placement: Placement, near: int) -> Candidate:
    return verifier.measure(placement, verifier.level(placement, near))


def _counted(search: Search) -> Counted:
    evaluated = [len(kind.evaluator.seen) for kind in search.kinds]
    looked = [kind.evaluator.looked for kind in search.kinds]
    return Counted(
        sum(evaluated),
        sum(max(0, every - some) for every, some in zip(looked, evaluated, strict=True)),
        sum(kind.evaluator.simulations for kind in search.kinds),
    )
