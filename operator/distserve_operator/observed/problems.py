"""Why a pod does not serve: an ordered list of small checks over its status, the most telling first."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from distserve_proto.contract import ExitReason

_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_CREATE_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_MISSING_CLAIM: Final = re.compile(r'persistentvolumeclaim "[^"]+" not found', re.IGNORECASE)
# An event takes no longer reason.
_CAMEL_CASE: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,127}")
# A restart ends in the same way until somebody changes the spec, the model or the node.
_PERMANENT: Final = frozenset(
    {
        ExitReason.MODEL_NOT_FOUND,
        ExitReason.MODEL_INVALID,
        ExitReason.MODEL_DOES_NOT_FIT,
        ExitReason.CONFIGURATION_INVALID,
    }
)
_FROM_HUB: Final = "--model=hf://"
_EXIT_MESSAGE: Final = re.compile(rf"({'|'.join(ExitReason)}): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """A condition reason and a text for people. `permanent`: the same pod will fail again until somebody acts."""

    reason: str
    message: str
    permanent: bool = False


Status = Mapping[str, Any]


def find_problem(pod: Mapping[str, Any]) -> Problem | None:
    """The problem that the status of a pod tells of, if any."""
    status = pod.get("status") or {}
    problem = next((problem for check in _CHECKS if (problem := check(status)) is not None), None)
    if problem is None or problem.reason != ExitReason.MODEL_NOT_FOUND:
        return problem
    # On a hub, not found may mean that the hub was away; the next restart of the container asks it again.
    return replace(problem, message=problem.message + _origin(pod), permanent=not _downloads(pod))


def _downloads(pod: Mapping[str, Any]) -> bool:
    containers = pod.get("spec", {}).get("containers") or ()
    return any(text.startswith(_FROM_HUB) for container in containers for text in container.get("args") or ())


def _origin(pod: Mapping[str, Any]) -> str:
    """The program knows only the path inside its container; the user wrote another one."""
    for volume in pod.get("spec", {}).get("volumes") or ():
        match volume:
            case {"hostPath": {"path": path}}:
                return f" (from the folder {path} of the node)"
            case {"persistentVolumeClaim": {"claimName": claim}}:
                return f" (from the claim {claim})"
    return ""


def _failed(status: Status) -> Problem | None:
    if status.get("phase") != "Failed":
        return None
    reason, message = status.get("reason") or "", status.get("message") or "the pod ended with phase Failed"
    return _exit_reason(status) or Problem(reason if _CAMEL_CASE.fullmatch(reason) else "PodFailed", message)


def _exit_reason(status: Status) -> Problem | None:
    for container in _unready(status):
        found = _EXIT_MESSAGE.fullmatch(_last_end(container).get("message") or "")
        if found:
            return Problem(found[1], found[2].strip(), permanent=found[1] in _PERMANENT)
    return None


def _image(status: Status) -> Problem | None:
    for container in _unready(status):
        waiting = _waiting(container)
        if waiting.get("reason") in _IMAGE_REASONS:
            text = f"{container['image']}: {waiting['reason']}: {waiting.get('message', '')}"
            return Problem("ImagePullFailed", text.rstrip(": "))
    return None


def _creation(status: Status) -> Problem | None:
    for container in _unready(status):
        waiting = _waiting(container)
        if waiting.get("reason") in _CREATE_REASONS:
            return Problem(str(waiting["reason"]), waiting.get("message") or "the container cannot be created")
    return None


def _out_of_memory(status: Status) -> Problem | None:
    for container in _unready(status):
        if _last_end(container).get("reason") == "OOMKilled":
            return Problem("OutOfMemory", "the container was killed because it used more memory than its limit")
    return None


def _crashed(status: Status) -> Problem | None:
    for container in _unready(status):
        end = _last_end(container)
        if container.get("restartCount", 0) > 0 or "terminated" in container.get("state", {}):
            text = (end.get("message") or "").strip()
            ending = f"exit code {end.get('exitCode', 'unknown')}, {container.get('restartCount', 0)} restarts"
            return Problem("Crashed", f"{ending}{': ' if text else ''}{text}")
    return None


def _unscheduled(status: Status) -> Problem | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            text = condition.get("message") or "no node fits"
            return Problem("VolumeClaimNotFound" if _MISSING_CLAIM.search(text) else "Unschedulable", text)
    return None


def _setting_up(status: Status) -> Problem | None:
    """Why a volume cannot be mounted is only in the kubelet's events."""
    states = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    if states.get("PodScheduled") != "True" or states.get("PodReadyToStartContainers") != "False":
        return None
    return Problem("Starting", "its volumes and network are being made; if that lasts, `kubectl describe pod` says why")


_CHECKS: Final[tuple[Callable[[Status], Problem | None], ...]] = (
    _failed,
    _exit_reason,
    _image,
    _creation,
    _out_of_memory,
    _crashed,
    _unscheduled,
    _setting_up,
)


def _unready(status: Status) -> list[Mapping[str, Any]]:
    return [container for container in status.get("containerStatuses") or () if not container.get("ready")]


def _waiting(container: Mapping[str, Any]) -> Mapping[str, Any]:
    waiting: Mapping[str, Any] = container.get("state", {}).get("waiting") or {}
    return waiting


def _last_end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    now = container.get("state", {}).get("terminated")
    before = container.get("lastState", {}).get("terminated")
    end: Mapping[str, Any] = now or before or {}
    return end
