"""Which events a pass is worth: what was done, and conditions that changed for better or worse."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from distserve_operator.cluster.eventing import Happening
from distserve_operator.conditions.condition import ConditionType, State, Verdict
from distserve_operator.conditions.overall import ROLE_CONDITIONS
from distserve_operator.observed.recorded import PlanOutcome, RecordedPlan, recorded_serving
from distserve_operator.plan.actions import Action, ApplyChild, CreatePod, DeletePod, RelabelPod
from distserve_operator.reconciling.acting import describe

# Reasons that a condition passes through while all is well.
_PROGRESS: Final = frozenset(
    {"Starting", "Rolling", "ScalingDown", "WaitingForDevices", "NotPlaced", "PlanOnly", "PreviousObjectsLeaving"}
)
# Told by `of_plan`, together with what was found.
_ANSWERS: Final = frozenset(PlanOutcome)
_PARTS: Final = (ConditionType.PLACEMENT, *ROLE_CONDITIONS.values(), ConditionType.GATEWAY)

Conditions = Iterable[Mapping[str, Any]]


def of_actions(actions: Iterable[Action]) -> list[Happening]:
    """One event per action."""
    return [Happening("Normal", _reason(action), "Reconcile", describe(action)) for action in actions]


def of_conditions(before: Conditions, after: Conditions) -> list[Happening]:
    """Ready's flips, and every new trouble of a part."""
    old = {condition["type"]: condition for condition in before}
    found = []
    for condition in after:
        was = old.get(condition["type"], {})
        if condition["type"] == ConditionType.READY:
            found += _flip(was, condition)
        elif condition["type"] in _PARTS and was.get("reason") != condition["reason"] and _is_trouble(condition):
            found.append(Happening("Warning", condition["reason"], "Reconcile", condition["message"]))
    return found


def of_plan(before: Mapping[str, Any], answer: RecordedPlan, verdict: Verdict) -> Happening:
    """A new answer of the search; `before` is the status without it."""
    if not answer.feasible:
        return Happening("Warning", "PlacementInfeasible", "Plan", f"{answer.outcome}: {verdict.message}")
    serving = recorded_serving(before)
    if serving is None or str(serving.placement) == answer.shape:
        return Happening("Normal", "PlacementFound", "Plan", verdict.message)
    return Happening("Normal", "PlacementChanged", "Plan", f"{serving.placement} => {verdict.message}")


def _flip(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Happening]:
    if now["status"] == State.TRUE and was.get("status") != State.TRUE:
        return [Happening("Normal", "Ready", "Reconcile", now["message"])]
    if now["status"] == State.FALSE and was.get("status") == State.TRUE:
        return [Happening("Warning", "NotReady", "Reconcile", now["message"])]
    return []


def _is_trouble(condition: Mapping[str, Any]) -> bool:
    return condition["status"] == State.FALSE and condition["reason"] not in _PROGRESS | _ANSWERS


def _reason(action: Action) -> str:
    match action:
        case CreatePod():
            return "PodCreated"
        case DeletePod():
            return "PodDeleted"
        case RelabelPod():
            return "PodRelabelled"
        case ApplyChild():
            return "ObjectApplied"
        case _:
            return "ObjectDeleted"
