"""What a pod's status says about why it does not serve."""

from typing import Any

import pytest

from distserve_operator.observed.problems import Problem, find_problem
from distserve_proto.contract import ExitReason


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return container(state={"waiting": {"reason": reason, "message": message}}, **more)


def container(**fields: Any) -> dict[str, Any]:
    entry = {"name": "worker", "image": "r/w:1", "ready": False, "restartCount": 0, "state": {}, **fields}
    return {"phase": "Running", "containerStatuses": [entry]}


def ended(message: str = "", reason: str = "Error", code: int = 1) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def unscheduled(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def setting_up(scheduled: str, sandbox: str) -> dict[str, Any]:
    conditions = [
        {"type": "PodReadyToStartContainers", "status": sandbox},
        {"type": "PodScheduled", "status": scheduled},
    ]
    return {**waiting("ContainerCreating"), "phase": "Pending", "conditions": conditions}


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({}, None),
        ({"phase": "Pending"}, None),
        (container(state={"running": {}}), None),
        (container(ready=True, restartCount=3, lastState=ended("ModelNotFound: x")), None),
        (
            waiting(
                "CrashLoopBackOff", "back-off", restartCount=2, lastState=ended("ModelNotFound: /models/x: no file")
            ),
            Problem("ModelNotFound", "/models/x: no file", permanent=True),
        ),
        (
            container(state={"running": {}}, restartCount=1, lastState=ended("ModelDoesNotFit: 9 GiB of 3 GiB")),
            Problem("ModelDoesNotFit", "9 GiB of 3 GiB", permanent=True),
        ),
        (
            container(state=ended("ConfigurationInvalid: --role is missing\n")),
            Problem("ConfigurationInvalid", "--role is missing", permanent=True),
        ),
        (
            waiting("CrashLoopBackOff", restartCount=2, lastState=ended("EngineFailed: out of luck")),
            Problem("EngineFailed", "out of luck"),
        ),
        (
            waiting("ImagePullBackOff", "not found"),
            Problem("ImagePullFailed", "r/w:1: ImagePullBackOff: not found"),
        ),
        (waiting("ErrImageNeverPull"), Problem("ImagePullFailed", "r/w:1: ErrImageNeverPull")),
        (waiting("CreateContainerConfigError", "no secret"), Problem("CreateContainerConfigError", "no secret")),
        (
            waiting("CrashLoopBackOff", restartCount=4, lastState=ended("Traceback", code=2)),
            Problem("Crashed", "exit code 2, 4 restarts: Traceback"),
        ),
        (
            container(restartCount=1, lastState=ended(reason="OOMKilled", code=137)),
            Problem("OutOfMemory", "the container was killed because it used more memory than its limit"),
        ),
        (unscheduled("0/1 nodes: 1 Insufficient cpu."), Problem("Unschedulable", "0/1 nodes: 1 Insufficient cpu.")),
        (
            unscheduled('persistentvolumeclaim "models" not found'),
            Problem("VolumeClaimNotFound", 'persistentvolumeclaim "models" not found'),
        ),
        (
            setting_up("True", "False"),
            Problem(
                "Starting", "its volumes and network are being made; if that lasts, `kubectl describe pod` says why"
            ),
        ),
        (setting_up("True", "True"), None),
        (setting_up("False", "False"), None),
        (
            {"phase": "Failed", "reason": "A" * 129, "message": "no event takes this reason"},
            Problem("PodFailed", "no event takes this reason"),
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, Problem("Evicted", "low on memory")),
        ({"phase": "Failed", "reason": "not a reason"}, Problem("PodFailed", "the pod ended with phase Failed")),
    ],
)
def test_the_most_telling_reason_is_found(status: dict[str, Any], problem: Problem | None) -> None:
    assert find_problem({"status": status}) == problem


@pytest.mark.parametrize(("uri", "permanent"), [("hf://a/b", False), ("/models/smollm2.gguf", True)])
def test_a_model_that_is_not_found_may_come_back_only_on_a_hub(uri: str, permanent: bool) -> None:
    """A hub that was away is asked again by the next restart; a path stays wrong until a person acts."""
    status = waiting("CrashLoopBackOff", restartCount=2, lastState=ended(f"ModelNotFound: {uri}: not there"))
    pod = {"spec": {"containers": [{"args": ["--role=prefill", f"--model={uri}"]}]}, "status": status}
    assert find_problem(pod) == Problem("ModelNotFound", f"{uri}: not there", permanent)


@pytest.mark.parametrize(
    ("volume", "origin"),
    [
        ({"hostPath": {"path": "/data/missing"}}, "the folder /data/missing of the node"),
        ({"persistentVolumeClaim": {"claimName": "weights"}}, "the claim weights"),
    ],
)
def test_a_model_that_is_not_found_is_named_as_the_user_wrote_it(volume: dict[str, Any], origin: str) -> None:
    status = waiting("CrashLoopBackOff", restartCount=2, lastState=ended("ModelNotFound: /models/x: no such file"))
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "models"} | volume]
    found = find_problem(
        {"spec": {"containers": [{"args": ["--model=/models/x"]}], "volumes": volumes}, "status": status}
    )
    assert found == Problem("ModelNotFound", f"/models/x: no such file (from {origin})", permanent=True)


def test_every_exit_reason_is_permanent_or_not_on_purpose() -> None:
    found = {reason: find_problem({"status": container(state=ended(f"{reason}: x"))}) for reason in ExitReason}
    passing = {reason for reason, problem in found.items() if problem is not None and not problem.permanent}
    assert passing == {ExitReason.ENGINE_FAILED}
