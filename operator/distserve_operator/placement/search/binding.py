"""What keeps the goodput of a fleet from being higher, told from runs a step above it on fresh paths.

The times of a run do not depend on the targets, so one set of runs says what looser ones would do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from distserve_operator.placement.answer import Candidate, KvMove
from distserve_operator.placement.bounds import FILLED
from distserve_operator.placement.goodput import ALL_PATHS, PUT_BACK, all_met, steady
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.rates import STEP
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.serving import link_of
from distserve_operator.placement.shape import Disaggregated, Placement
from distserve_operator.placement.simulation.running import Outcome
from distserve_operator.placement.slo import Slo

_FREED: Final = 1.2  # by so much more goodput is the link to blame for what is missing
_LOOSER: Final = 2.0  # times a target, or the memory: what would do then is to blame


@dataclass(frozen=True, slots=True)
class _Target:
    """One target, the share of requests that miss it, and all targets with this one looser."""

    name: str
    seconds: float
    missed: float
    looser: Slo


def binding(question: Question, evaluator: Evaluator, verifier: Verifier, chosen: Candidate) -> str:
    """What keeps the goodput from being higher, with its figures: Link, TTFT, TPOT, Gap, Memory or Rate.

    A target, if the next step would be held were it looser; else what makes the fleet fall behind there, whatever the
    targets are.
    """
    placement, freed, above = chosen.placement, chosen.goodput * _FREED, f"above {chosen.goodput:.3g} req/s"
    if _link_binds(question, evaluator, placement, freed):
        kv = kv_move(question, evaluator, placement)
        assert kv is not None  # else there is nothing that a link could slow down
        return (
            f"Link: the KV of a request takes {kv.seconds * 1e3:.3g} ms on the {kv.link}; "
            f"were it there at once, {freed:.3g} req/s would be held"
        )
    rate = chosen.goodput * STEP
    past = verifier.together(placement, rate)
    targets = sorted(_targets(question.slo, past), key=lambda one: -one.missed)
    goes_on = _goes_on(question, evaluator, placement, rate, past)
    for one in targets:
        looser = replace(question, slo=one.looser)
        enough = _missed(looser, past) <= 1 - question.slo.attainment
        if enough and _goes_on(looser, evaluator, placement, rate, past):
            return _too_many_miss(one, above)
    if goes_on and targets:
        return _too_many_miss(targets[0], above)
    signs = "; ".join(_signs(past))
    if _memory_binds(question, evaluator, verifier, placement, rate, past):
        full = signs or f"in the mean requests would take about {100 * FILLED:.0f} % of them or more"
        return f"Memory: {above} the KV caches are full, whatever the targets are: {full}"
    busy = signs or "so near to the most that its instances can do it takes longer to settle than any run lasts"
    return f"Rate: {above} the fleet does not keep up, whatever the targets are: {busy}"


def _too_many_miss(one: _Target, above: str) -> str:
    return f"{one.name}: {above} too many requests miss {one.seconds * 1e3:g} ms"


def _targets(slo: Slo, past: Outcome) -> Iterator[_Target]:
    """Those that some request misses."""
    each = (
        ("TTFT", past.ttft, slo.ttft, replace(slo, ttft=_LOOSER * slo.ttft)),
        ("TPOT", past.tpot, slo.tpot, replace(slo, tpot=_LOOSER * slo.tpot)),
        ("Gap", past.gap, math.inf if slo.gap is None else slo.gap, replace(slo, gap=_LOOSER * (slo.gap or math.inf))),
    )
    for name, seconds, target, looser in each:
        missed = float(np.mean(seconds > target))
        if missed > 0:
            yield _Target(name, target, missed, looser)


def _missed(question: Question, past: Outcome) -> float:
    """Share of the requests that miss their targets; of a finite window the larger one of two, each on its own."""
    slo = question.slo
    if not isinstance(question.window, FiniteWindow):
        return float(np.mean(~all_met(past, slo)))
    each = replace(slo, tpot=math.inf, gap=None), replace(slo, ttft=math.inf)
    return max(float(np.mean(~all_met(past, one))) for one in each)


def _goes_on(question: Question, evaluator: Evaluator, placement: Placement, rate: float, past: Outcome) -> bool:
    """Whether a fleet would go on as in a run, and may at all, as verification sees it; of a burst nobody asks."""
    if isinstance(question.window, FiniteWindow):
        return True
    bounds = Evaluator(question, evaluator.path, evaluator.ladder, evaluator.demand)
    return rate <= bounds.upper(placement) and steady([past], ALL_PATHS)


def _signs(past: Outcome) -> Iterator[str]:
    """How a run shows that a fleet does not go on like that."""
    put_back = past.put_back / len(past.ttft)
    if put_back > PUT_BACK:
        yield f"{100 * put_back:.3g} % of the requests are put back"
    if past.growth > ALL_PATHS.growth:
        yield f"waiting grows by {1e3 * past.growth:.3g} ms a second"
    if past.slowing > ALL_PATHS.slowing:
        yield f"the time per token grows by {100 * past.slowing:.3g} % within a run"


def _memory_binds(
    question: Question, evaluator: Evaluator, verifier: Verifier, placement: Placement, rate: float, past: Outcome
) -> bool:
    """Whether a fleet that falls behind gives blocks back, or would go on with more memory."""
    if past.put_back > PUT_BACK * len(past.ttft):
        return True
    larger = _with_more_memory(question)
    judge = Evaluator(larger, evaluator.path, evaluator.ladder, evaluator.demand)
    seen = past if steady([past], ALL_PATHS) else Verifier(larger, judge, verifier.paths).together(placement, rate)
    return _goes_on(larger, judge, placement, rate, seen)


def _with_more_memory(question: Question) -> Question:
    device = question.device
    cache = None if device.cache is None else _LOOSER * device.cache
    return replace(question, device=replace(device, memory=_LOOSER * device.memory, cache=cache))


def _link_binds(question: Question, evaluator: Evaluator, placement: Placement, rate: float) -> bool:
    """Whether a fleet that misses its targets at a rate would meet them, were KV moved in no time."""
    if not isinstance(placement, Disaggregated) or evaluator.passes(placement, rate):
        return False
    return Evaluator(with_free_links(question), evaluator.path).passes(placement, rate)


def with_free_links(question: Question) -> Question:
    """The same question, were KV moved in no time."""
    device = replace(question.device, node_link=math.inf, network_link=math.inf)
    return replace(question, device=device, network_bytes_per_second=None)


def kv_move(question: Question, evaluator: Evaluator, placement: Placement) -> KvMove | None:
    """The KV of the mean request that moves, on the link it takes; None where all stay."""
    demand = evaluator.demand
    if not isinstance(placement, Disaggregated) or demand.moving == 0:
        return None
    link = link_of(question, placement)
    moved = question.model.kv_bytes_per_token * demand.moved / demand.moving
    return KvMove(moved, moved / link.bytes_per_second, link.name)
