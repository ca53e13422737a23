"""Which events are posted."""

import pytest
from distserve_testing.searches import FOUND

from distserve_operator.conditions.condition import State, Verdict
from distserve_operator.observed.recorded import PlanOutcome, recorded_plan
from distserve_operator.plan.actions import CreatePod, DeletePod, RelabelPod
from distserve_operator.reconciling.happenings import of_actions, of_conditions, of_plan
from distserve_proto.contract import Role

Condition = dict[str, str]


def condition(kind: str, status: str, reason: str) -> Condition:
    return {"type": kind, "status": status, "reason": reason, "message": f"{kind} {reason}"}


def test_every_action_is_told_with_its_reason() -> None:
    found = of_actions(
        [CreatePod(Role.PREFILL, 0, 1, "missing"), DeletePod("p", "u", "old"), RelabelPod("p", "u", {}, "x")]
    )
    assert [(h.type, h.reason, h.note) for h in found] == [
        ("Normal", "PodCreated", "prefill instance 0, attempt 1: missing"),
        ("Normal", "PodDeleted", "pod p: old"),
        ("Normal", "PodRelabelled", "pod p: x"),
    ]


def test_ready_is_told_when_it_flips() -> None:
    down, up = condition("Ready", "False", "Starting"), condition("Ready", "True", "Serving")
    assert [h.reason for h in of_conditions([down], [up])] == ["Ready"]
    assert [(h.type, h.reason) for h in of_conditions([up], [down])] == [("Warning", "NotReady")]
    assert of_conditions([up], [up]) == []
    assert of_conditions([], [down]) == []


def test_trouble_is_told_once_and_progress_not_at_all() -> None:
    starting = condition("PrefillReady", "False", "Starting")
    trouble = condition("PrefillReady", "False", "ModelNotFound")
    assert of_conditions([], [starting]) == []
    assert [(h.type, h.reason, h.note) for h in of_conditions([starting], [trouble])] == [
        ("Warning", "ModelNotFound", "PrefillReady ModelNotFound")
    ]
    assert of_conditions([trouble], [trouble]) == []


ONE = {"tp": 1, "pp": 1, "replicas": 1}
RECORD = {"inventory": "1x8", "planner": "1", "inputsDigest": "d"}


@pytest.mark.parametrize(
    ("serving", "outcome", "expected"),
    [
        (None, "Feasible", ("Normal", "PlacementFound", "what was found")),
        ((2, 1), "Feasible", ("Normal", "PlacementFound", "what was found")),
        ((1, 1), "Feasible", ("Normal", "PlacementChanged", "1xTP1 -> 1xTP1 => what was found")),
        ((1, 1), "RateUnreachable", ("Warning", "PlacementInfeasible", "RateUnreachable: what was found")),
    ],
)
def test_every_answer_is_told(serving: tuple[int, int] | None, outcome: str, expected: tuple[str, str, str]) -> None:
    before = {}
    if serving is not None:
        prefill, decode = (ONE | {"replicas": replicas} for replicas in serving)
        before["serving"] = {"prefill": prefill, "decode": decode, "fleetDigest": "f"}
    answer = recorded_plan({"plan": FOUND | RECORD | {"outcome": outcome}})
    assert answer is not None
    told = of_plan(before, answer, Verdict(State.TRUE, "Planned", "what was found"))
    assert (told.type, told.reason, told.note) == expected


@pytest.mark.parametrize("outcome", list(PlanOutcome))
def test_an_answer_is_not_told_again_as_a_condition(outcome: PlanOutcome) -> None:
    assert of_conditions([], [condition("PlacementReady", "False", outcome)]) == []
