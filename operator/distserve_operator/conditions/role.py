"""PrefillReady, DecodeReady and ColocatedReady."""

from collections.abc import Callable
from typing import Final

from distserve_operator.conditions.condition import State, Verdict
from distserve_operator.conditions.situation import RoleSituation


def role_verdict(situation: RoleSituation) -> Verdict:
    """True when every instance is ready and of the current template (B30)."""
    return next(verdict for check in _CHECKS if (verdict := check(situation)) is not None)


def _not_wanted(s: RoleSituation) -> Verdict | None:
    if s.shape.replicas:
        return None
    text = f"{len(s.alive)} {s.role} instances are left, which serve until those of the new shape do"
    return Verdict(State.FALSE, "ScalingDown", text)


def _all_ready(s: RoleSituation) -> Verdict | None:
    ready = {pod.instance for pod in s.updated if pod.ready}
    complete = ready == set(range(s.shape.replicas)) and len(s.alive) == s.shape.replicas
    return Verdict(State.TRUE, "AllReady", _count(s)) if complete else None


def _refused(s: RoleSituation) -> Verdict | None:
    if not s.failures:
        return None
    worst = max(s.failures, key=lambda failure: failure.permanent)
    return Verdict(State.FALSE, worst.reason, f"{_count(s)}; {worst.message}", worst.permanent)


def _pod_problem(s: RoleSituation) -> Verdict | None:
    found = [(pod, pod.problem) for pod in s.current if pod.problem is not None and not pod.ready]
    if not found:
        return None
    pod, problem = max(found, key=lambda item: item[1].permanent)
    return Verdict(State.FALSE, problem.reason, f"{_count(s)}; {pod.name}: {problem.message}", problem.permanent)


def _rolling(s: RoleSituation) -> Verdict | None:
    old = len(s.alive) - len(s.updated)
    return Verdict(State.FALSE, "Rolling", f"{_count(s)}; {old} still to be replaced") if old else None


def _no_device(s: RoleSituation) -> Verdict | None:
    missing = s.shape.replicas - len(s.updated)
    if missing <= 0:
        return None
    leaving = sum(pod.terminating for pod in s.pods)
    text = f"{missing} not made yet, {leaving} still leaving; at most {s.max_devices} devices may be held at once"
    return Verdict(State.FALSE, "WaitingForDevices" if leaving else "Starting", f"{_count(s)}; {text}")


def _scaling_down(s: RoleSituation) -> Verdict | None:
    surplus = len(s.alive) - s.shape.replicas
    return Verdict(State.FALSE, "ScalingDown", f"{_count(s)}; {surplus} too many") if surplus > 0 else None


def _starting(s: RoleSituation) -> Verdict:
    return Verdict(State.FALSE, "Starting", _count(s))


_CHECKS: Final[tuple[Callable[[RoleSituation], Verdict | None], ...]] = (
    _not_wanted,
    _all_ready,
    _refused,
    _pod_problem,
    _rolling,
    _no_device,
    _scaling_down,
    _starting,
)


def _count(s: RoleSituation) -> str:
    ready, wanted = sum(pod.ready for pod in s.updated), s.shape.replicas
    old = sum(pod.ready for pod in s.alive) - ready
    beside = f", {old} of the previous template" if old else ""
    return f"{ready} of {wanted} {s.role} instance{'' if wanted == 1 else 's'} ready{beside}"
