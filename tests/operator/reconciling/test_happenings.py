"""Which events are posted."""

from distserve_operator.plan.actions import CreatePod, DeletePod, RelabelPod
from distserve_operator.reconciling.happenings import of_actions, of_conditions
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
