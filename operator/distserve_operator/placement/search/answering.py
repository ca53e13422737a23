"""From a question to a plan: which search it takes."""

from dataclasses import replace

from distserve_operator.placement.answer import Plan
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.rates import PER_DEVICE
from distserve_operator.placement.search import refusing
from distserve_operator.placement.search.cells import SEARCHED, bounded, cells_of, divided, per_device, without_rate
from distserve_operator.placement.search.copying import for_a_rate, of_copies, with_most
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.paper import largest_that_fits, paper_rule
from distserve_operator.placement.search.racing import race
from distserve_operator.placement.search.searching import Search, Searched, best, search_of
from distserve_operator.placement.search.spaces import shapes
from distserve_operator.placement.search.telling import explained, rule_told
from distserve_operator.placement.workload.path import Path


def plan(question: Question) -> Plan:
    """The placement for a question, and why. Deterministic: equal questions have equal answers."""
    some = replace(question, inventory=bounded(question.inventory, SEARCHED))
    if not some.inventory.devices or not shapes(some):
        return refusing.nothing_fits(question)
    path = path_of(question)
    if question.rule == "paper":
        return _by_the_paper(replace(question, only="disaggregated", listed=None), path)
    if question.rate is None:
        return _best_per_device(question, path)
    if question.rate > per_device(some) * question.inventory.devices:
        return with_most(question, path)
    cells = cells_of(some)
    if cells == 1:
        return for_a_rate(question, path, *divided(question, cells))
    return of_copies(question, path, question.rate, cells)


def _best_per_device(question: Question, path: Path) -> Plan:
    search = search_of(without_rate(question, SEARCHED), path, PER_DEVICE)
    return explained(search, best(search))


def _by_the_paper(question: Question, path: Path) -> Plan:
    """What the paper's rule asks for, or as much of it as fits, judged on fresh paths like any other fleet."""
    evaluator = Evaluator(replace(question, inventory=bounded(question.inventory, SEARCHED)), path)
    searched = Searched(evaluator)
    search = Search(question, [searched])
    ruled = paper_rule(evaluator)
    if ruled is None:
        return explained(search, None)
    there_is = largest_that_fits(ruled.placement, question.inventory)
    if there_is is None and not isinstance(question.window, FiniteWindow):
        return refusing.too_few(question, None, ruled.placement)
    placement = there_is or ruled.placement  # which is told for comparison with what was published
    searched.finalists = [(placement, evaluator.ladder.level(ruled.placement, ruled.account))]
    if question.rate is not None and search.verifier.holds(placement, question.rate):
        search.held = question.rate
    winner = race(search.verifier, searched.finalists)
    found = explained(search, winner)
    found = replace(found, reasons=(*rule_told(search, ruled, winner), *found.reasons))
    enough = there_is == ruled.placement or (there_is is not None and found.feasible)
    return found if enough else refusing.too_few(question, found, ruled.placement)
