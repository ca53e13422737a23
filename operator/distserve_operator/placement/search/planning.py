"""From a question to a plan: search both kinds of fleet, verify the finalists, choose, explain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from distserve_operator.placement.answer import Candidate, Counted, Plan
from distserve_operator.placement.question import FiniteWindow, Question, Steady
from distserve_operator.placement.search import explaining
from distserve_operator.placement.search.cells import bounded, cells_of, one_cell, repeated
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.joint import best_per_device, by_devices
from distserve_operator.placement.search.paper import paper_rule
from distserve_operator.placement.search.spaces import fits, shapes
from distserve_operator.placement.search.verifying import Verifier, preferred
from distserve_operator.placement.shape import Placement
from distserve_operator.placement.workload.path import Path

FINALISTS: Final = 4
PATIENCE: Final = 40  # times TTFT that the judged requests of a verification span at least,
LONGEST: Final = 6000  # if that takes no more of them
SPARE: Final = (4, 16, 64)  # times the devices that the bounds call for, where fewer did not do
MOST: Final = 128  # devices of a cell: the search never looks at more at once
Kind = Literal["disaggregated", "colocated"]
KINDS: Final[tuple[Kind, ...]] = ("disaggregated", "colocated")


@dataclass(frozen=True, slots=True)
class _Searched:
    """One kind of fleet after its search; `holds`: the candidates hold the rate asked for, or any when none was."""

    candidates: tuple[Candidate, ...]
    holds: bool
    evaluator: Evaluator
    verifier: Verifier
    pruned: int

    @property
    def best(self) -> Candidate | None:
        """The one to take."""
        return preferred(self.candidates) if self.candidates else None


def plan(question: Question) -> Plan:
    """The placement for a question, and why. Deterministic: equal questions have equal answers."""
    some = replace(question, inventory=bounded(question.inventory, MOST))
    if not some.inventory.devices or not shapes(some):
        return explaining.nothing_fits(question)
    path = path_of(question)
    if question.rule == "paper":
        return _choose(question, [_by_the_paper(question, path)])
    cells = cells_of(some)
    if cells * len(KINDS) > question.inventory.devices:
        cells = 1
    kinds = KINDS if question.only is None else (question.only,)
    part = one_cell(question, cells)
    found = _plan_part(part, kinds, path)
    for spare in SPARE:
        larger = one_cell(question, cells, spare)
        hopeless = found.chosen is None or found.chosen.goodput == 0
        if found.feasible or hopeless or larger == part:
            break
        part, found = larger, _plan_part(larger, kinds, path)
    return repeated(question, found, cells)


def _plan_part(question: Question, kinds: Sequence[Kind], path: Path) -> Plan:
    return _choose(question, [_search(replace(question, only=kind), path) for kind in kinds])


def _patient(question: Question, evaluator: Evaluator) -> Question:
    """The same with runs that are long against TTFT, or a queue that grows for ever is not seen to."""
    if isinstance(question.window, FiniteWindow):
        return question
    per_device = max(evaluator.prefill_upper(shape) / shape.devices for shape in shapes(question))
    most = per_device * question.inventory.devices
    rate = most if question.rate is None else min(most, question.rate)
    least = min(LONGEST, math.ceil(PATIENCE * rate * question.slo.ttft))
    return replace(question, window=Steady(max(question.window.requests, least)))


def _search(question: Question, path: Path) -> _Searched:
    evaluator = Evaluator(question, path)
    verifier = Verifier.of(_patient(question, evaluator), evaluator)
    if question.rate is not None:
        candidates = _holding(evaluator, verifier, question.rate)
        if candidates:
            return _Searched(candidates, True, evaluator, verifier, 0)
    found = best_per_device(evaluator)
    finalists = _finalists(found.kept)
    candidates = tuple(verifier.measure(placement, evaluator.goodput(placement)) for placement in finalists)
    return _Searched(candidates, question.rate is None and bool(candidates), evaluator, verifier, found.pruned)


def _holding(evaluator: Evaluator, verifier: Verifier, rate: float) -> tuple[Candidate, ...]:
    """The candidates with the fewest devices that still hold `rate` on fresh paths."""
    for level in by_devices(evaluator, rate):
        ordered = sorted(level, key=lambda placement: -evaluator.upper(placement))[: 6 * FINALISTS]
        steady = [placement for placement in ordered if verifier.holds(placement, rate)]
        if steady:
            return tuple(verifier.measure(p, evaluator.goodput(p)) for p in steady[:FINALISTS])
    return ()


def _finalists(kept: Sequence[Placement]) -> list[Placement]:
    """The best ones and, since close ones tie, the smallest ones."""
    smallest = sorted(kept, key=lambda placement: placement.devices)
    return list(dict.fromkeys([*kept[:FINALISTS], *smallest[: FINALISTS // 2]]))


def _by_the_paper(question: Question, path: Path) -> _Searched:
    evaluator = Evaluator(replace(question, inventory=bounded(question.inventory, MOST)), path)
    verifier = Verifier.of(question, evaluator)
    placement = paper_rule(evaluator)
    if placement is None:
        return _Searched((), False, evaluator, verifier, 0)
    candidate = verifier.measure(placement, evaluator.goodput(placement))
    holds = fits(placement, question.inventory) and candidate.goodput > 0
    return _Searched((candidate,), holds, evaluator, verifier, 0)


def _choose(question: Question, searched: Sequence[_Searched]) -> Plan:
    """The better kind: the one that holds the rate, with the fewest devices, or with the best goodput per device."""
    bests = [(kind, kind.best) for kind in searched]
    usable = [(kind, best) for kind, best in bests if best is not None and best.goodput > 0]
    counted = Counted(
        sum(len(kind.evaluator.seen) for kind in searched),
        sum(kind.pruned for kind in searched),
        sum(kind.evaluator.simulations + kind.verifier.simulations for kind in searched),
    )
    if not usable:
        return explaining.nothing_holds(question, searched[0].verifier, counted)
    holding = [(kind, best) for kind, best in usable if kind.holds]
    pool = holding or usable
    if question.rate is not None and holding:
        fewest = min(best.placement.devices for _, best in pool)
        pool = [(kind, best) for kind, best in pool if best.placement.devices == fewest]
    chosen = preferred([best for _, best in pool])
    kind = next(kind for kind, best in pool if best is chosen)
    others = [candidate for one in searched for candidate in one.candidates if candidate is not chosen]
    return explaining.explain(
        question, kind.evaluator, kind.verifier, chosen, [best for _, best in usable], others, counted, bool(holding)
    )
