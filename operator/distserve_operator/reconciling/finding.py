"""One search from its question to the fields of `status.plan`; runs in a process of its own.

The simulator and its compiler are loaded here and nowhere else, so that the operator itself stays small.
"""

import time
from dataclasses import dataclass
from typing import Any

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.targets import Targets
from distserve_operator.observed.nodes import Survey
from distserve_operator.observed.recorded import PlanOutcome
from distserve_operator.plan.answers import answer_status, refusal_status
from distserve_operator.reconciling.warming import load_simulator


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is to be found, and the free devices to find it for."""

    wanted: Wanted
    targets: Targets
    survey: Survey


def find(assignment: Assignment) -> dict[str, Any]:
    """The answer as it goes into the status."""
    return _too_few(assignment) or _searched(assignment)


def _too_few(assignment: Assignment) -> dict[str, Any] | None:
    """B35: with numbers, before anything is made."""
    cluster, survey = assignment.wanted.cluster, assignment.survey
    if survey.devices:
        return None
    text = f"a fleet takes at least 1 {cluster.device_type} device, 0 are free on the nodes"
    return refusal_status(PlanOutcome.NOT_ENOUGH_DEVICES, text)


def _searched(assignment: Assignment) -> dict[str, Any]:
    load_simulator()
    # Imported in the child alone: together they take a second and a hundred megabytes.
    from distserve_operator.placement.search.answering import plan
    from distserve_operator.placement.serving import colocated_tokens, prefill_tokens
    from distserve_operator.placement.shape import Disaggregated
    from distserve_operator.placement.workload.errors import WorkloadError
    from distserve_operator.plan.question import question_of

    try:
        question = question_of(assignment.wanted, assignment.targets, assignment.survey)
    except WorkloadError as error:
        return refusal_status(PlanOutcome.WORKLOAD_INVALID, f"workload: {error}")
    start = time.perf_counter()
    found = plan(question)
    latency = question.latency
    split = found.chosen is not None and isinstance(found.chosen.placement, Disaggregated)
    tokens = prefill_tokens if split else colocated_tokens
    batch_tokens = {tp: tokens(latency, law) for tp, law in latency.laws.items()}
    return answer_status(found, 1e3 * (time.perf_counter() - start), batch_tokens)
