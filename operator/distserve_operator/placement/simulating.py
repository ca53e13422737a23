"""One fixed placement, simulated at chosen rates or on a recorded trace."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from distserve_operator.placement.answer import Served
from distserve_operator.placement.goodput import served, targets_of, whole_window
from distserve_operator.placement.memory import shape_problem
from distserve_operator.placement.question import Question
from distserve_operator.placement.search.evaluating import Evaluator, first_shape, path_of
from distserve_operator.placement.serving import fleet_of
from distserve_operator.placement.shape import Colocated, Placement, Pool
from distserve_operator.placement.simulation.running import simulate as run
from distserve_operator.placement.workload.path import Path


class PlacementError(ValueError):
    """A placement that cannot exist, with the shape, why, and what could."""


def simulate(
    question: Question, placement: Placement, rates: Sequence[float] | None = None, trace: Path | None = None
) -> list[Served]:
    """Attainment and latencies at each rate, or of the whole trace with its own arrivals.

    A pool without instances leaves its phase out: requests come with their first token, or end with it. Latencies of
    that phase are None.

    Raises:
        PlacementError: a shape does not fit the model or the device, or there is no latency law for it.
    """
    for pool in _pools(placement):
        _check(question, pool)
    if trace is not None:
        return [_of_phases(placement, _replayed(question, placement, trace))]
    evaluator = Evaluator(question, path_of(question))
    return [_of_phases(placement, _at(evaluator, placement, rate)) for rate in rates or ()]


def _at(evaluator: Evaluator, placement: Placement, rate: float) -> Served:
    seen = evaluator.watch(placement, rate)
    return replace(served(seen, rate, evaluator.question), steady=evaluator.goes_on(placement, rate, seen))


def _of_phases(placement: Placement, one: Served) -> Served:
    """Without prefill instances nobody waits for a first token, be it taken in or not."""
    if isinstance(placement, Colocated) or placement.prefill.replicas > 0:
        return one
    return replace(one, ttft=None)


def _replayed(question: Question, placement: Placement, trace: Path) -> Served:
    """All requests of a trace, from an empty system, at its own pace; no rate is known of what comes all at once."""
    host = question.latency.laws[first_shape(placement).tp].host
    targets = targets_of(question, whole_window(len(trace)), host, failures=len(trace))
    span = float(trace.arrivals[-1])
    outcome = run(fleet_of(question, placement), trace, 1.0, targets)
    return served(outcome, len(trace) / span if span > 0 else math.nan, question)


def _pools(placement: Placement) -> Iterator[Pool]:
    yield from (pool for pool in placement.pools if pool.replicas > 0)


def _check(question: Question, pool: Pool) -> None:
    shape = pool.shape
    problem = shape_problem(question.model, question.device, shape)
    if problem is not None:
        raise PlacementError(problem)
    if shape.tp not in question.latency.laws:
        known = ", ".join(str(tp) for tp in sorted(question.latency.laws))
        raise PlacementError(
            f"{shape}: there is no latency for tp {shape.tp}, only for tp {known} ({question.latency.source})"
        )
