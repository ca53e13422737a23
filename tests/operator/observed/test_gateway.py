"""The gateway's pods, and which of them can be asked."""

from typing import Any

from distserve_operator.observed.gateway import GatewayPod, gateway_problem, pods_of_gateway, ready_pod
from distserve_operator.observed.problems import Problem

DEPLOYMENT: dict[str, Any] = {"metadata": {"name": "chat-gateway"}}


def pod(name: str, *, ready: bool = True, owner: str = "chat-gateway-7d9f", **metadata: Any) -> dict[str, Any]:
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": "r", "controller": True}]
    metadata = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners} | metadata
    state = {"type": "Ready", "status": "True" if ready else "False"}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [state], "podIP": f"ip-of-{name}"}}


def test_only_pods_of_its_replica_sets_are_the_gateways() -> None:
    """B31: labels are not enough to speak for a deployment."""
    leaving = pod("leaving", deletionTimestamp="2026-01-01T00:00:00Z")
    strangers = [
        pod("of-another", owner="chat-gateway-2-7d9f"),
        pod("of-nobody", ownerReferences=[]),
        pod("of-a-job", ownerReferences=[{"kind": "Job", "name": "chat-gateway-1", "uid": "j", "controller": True}]),
    ]
    assert pods_of_gateway([pod("a"), leaving, *strangers], "chat-gateway") == [pod("a")]


def test_the_youngest_ready_pod_is_asked() -> None:
    young = pod("b", creationTimestamp="2026-01-02T00:00:00Z")
    starting = pod("c", ready=False, creationTimestamp="2026-01-03T00:00:00Z")
    assert ready_pod([pod("a"), young, starting]) == GatewayPod("b", "ip-of-b")
    assert ready_pod([starting, pod("d") | {"status": {}}]) is None


def test_the_worst_problem_of_the_pods_is_theirs() -> None:
    def ended(name: str, message: str) -> dict[str, Any]:
        end = {"terminated": {"exitCode": 1, "message": message}}
        container = {"name": "gateway", "image": "g", "restartCount": 1, "lastState": end, "state": {}}
        return pod(name) | {"status": {"phase": "Running", "containerStatuses": [container]}}

    pods = [ended("a", "EngineFailed: x"), ended("b", "ModelInvalid: no tensor"), pod("c")]
    assert gateway_problem(DEPLOYMENT, pods) == Problem("ModelInvalid", "b: no tensor", permanent=True)
    assert gateway_problem(DEPLOYMENT, [pod("c")]) is None


def test_a_pod_that_the_deployment_may_not_make_is_a_problem_too() -> None:
    """Nobody but the Deployment controller is told of a quota or of an admission hook's refusal."""

    def replica_failure(status: str) -> dict[str, Any]:
        condition = {
            "type": "ReplicaFailure",
            "status": status,
            "reason": "FailedCreate",
            "message": "exceeded quota: q",
        }
        return DEPLOYMENT | {"status": {"conditions": [{"type": "Available", "status": "False"}, condition]}}

    problem = Problem("PodRefused", "a pod of chat-gateway cannot be made: exceeded quota: q")
    assert gateway_problem(replica_failure("True"), []) == problem
    assert gateway_problem(replica_failure("True"), [pod("c")]) == problem
    assert gateway_problem(replica_failure("False"), []) is None
