"""GatewayReady."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from distserve_operator.api.shape import can_serve
from distserve_operator.conditions.condition import State, Verdict
from distserve_operator.conditions.situation import Situation
from distserve_operator.observed.answer import CannotServe, NoAnswer
from distserve_proto.contract import GATEWAY_HTTP_PORT, Role


def gateway_verdict(situation: Situation) -> Verdict:
    """True when every gateway pod is ready and of the current template, and finds a usable pair if it was asked."""
    return next(verdict for check in _CHECKS if (verdict := check(situation)) is not None)


def is_in_question(situation: Situation) -> bool:
    """Whether to ask the gateway: it and instances that can serve are ready, so it ought to find them usable."""
    unasked = gateway_verdict(replace(situation, answer=None))
    return unasked.holds and can_serve({pod.role for pod in situation.fleet.pods if pod.ready})


def _refused(s: Situation) -> Verdict | None:
    mine = [failure for failure in s.failures if failure.role in {Role.GATEWAY, None}]
    if not mine:
        return None
    worst = max(mine, key=lambda failure: failure.permanent)
    return Verdict(State.FALSE, worst.reason, worst.message, worst.permanent)


def _missing(s: Situation) -> Verdict | None:
    return (
        Verdict(State.FALSE, "Starting", "the gateway's Deployment is being made") if s.fleet.gateway is None else None
    )


def _all_ready(s: Situation) -> Verdict | None:
    gateway, wanted = s.fleet.gateway, s.deployment.gateway.replicas
    if gateway is None or not gateway.current or s.fleet.ready_gateway is None:
        return None
    complete = min(gateway.ready, gateway.updated) >= wanted and gateway.replicas == wanted
    return _usable(s) if complete else None


def _usable(s: Situation) -> Verdict:
    match s.answer:
        case CannotServe(reason):
            return Verdict(State.FALSE, "NoUsablePair", f"{_count(s)}; {reason}")
        case NoAnswer(why):
            text = f"the operator must reach port {GATEWAY_HTTP_PORT} of gateway pods, see their NetworkPolicies"
            return Verdict(State.FALSE, "GatewayUnreachable", f"{_count(s)}; {why}: {text}")
    return Verdict(State.TRUE, "AllReady", _count(s))


def _pod_problem(s: Situation) -> Verdict | None:
    problem = s.fleet.gateway_problem
    if problem is None:
        return None
    return Verdict(State.FALSE, problem.reason, f"{_count(s)}; {problem.message}", problem.permanent)


def _rolling(s: Situation) -> Verdict | None:
    gateway = s.fleet.gateway
    if gateway is None or gateway.replicas == gateway.updated:
        return None
    return Verdict(State.FALSE, "Rolling", f"{_count(s)}; {gateway.updated} of {gateway.replicas} of the new template")


def _starting(s: Situation) -> Verdict:
    return Verdict(State.FALSE, "Starting", _count(s))


_CHECKS: Final[tuple[Callable[[Situation], Verdict | None], ...]] = (
    _refused,
    _missing,
    _all_ready,
    _pod_problem,
    _rolling,
    _starting,
)


def _count(s: Situation) -> str:
    ready, wanted = s.fleet.gateway.ready if s.fleet.gateway else 0, s.deployment.gateway.replicas
    return f"{min(ready, wanted)} of {wanted} gateway pod{'' if wanted == 1 else 's'} ready"
