"""One search from its question to the fields of `status.plan`; runs in a process of its own.

The simulator and its compiler are loaded here and nowhere else, so that the operator itself stays small.
"""

import time
from dataclasses import dataclass
from typing import Any

from distserve_operator.api.capability import WORKERS
from distserve_operator.api.deployment import Mode, Wanted
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
    least = 1 if assignment.wanted.mode is Mode.PLAN else WORKERS.fewest_devices
    free = min(survey.devices, cluster.max_devices)
    if free >= least:
        return None
    free_text = f"cluster.maxDevices is {free}" if free == cluster.max_devices else f"{free} are free on the nodes"
    text = f"a fleet takes at least {least} {cluster.device_type} devices, {free_text}"
    return refusal_status(PlanOutcome.NOT_ENOUGH_DEVICES, text)


def _searched(assignment: Assignment) -> dict[str, Any]:
    load_simulator()
    # Imported in the child alone: together they take a second and a hundred megabytes.
    from distserve_operator.placement.search.planning import plan
    from distserve_operator.placement.workload.errors import WorkloadError
    from distserve_operator.plan.question import DoesNotFitError, question_of

    try:
        question = question_of(assignment.wanted, assignment.targets, assignment.survey)
    except WorkloadError as error:
        return refusal_status(PlanOutcome.WORKLOAD_INVALID, f"workload: {error}")
    except DoesNotFitError as error:
        return refusal_status(PlanOutcome.DOES_NOT_FIT, str(error))
    start = time.perf_counter()
    found = plan(question)
    return answer_status(found, 1e3 * (time.perf_counter() - start))
