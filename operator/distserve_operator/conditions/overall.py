"""Ready, Reconciling and Stalled: the sum of the other conditions, in the meaning of kstatus."""

from collections.abc import Mapping
from typing import Final

from distserve_operator.conditions.condition import ConditionType, State, Verdict, Verdicts
from distserve_operator.conditions.decision import NOT_PLACED, PLAN_ONLY
from distserve_operator.conditions.gateway import gateway_verdict
from distserve_operator.conditions.role import role_verdict
from distserve_operator.conditions.situation import Situation, deployment_endpoint
from distserve_proto.contract import Role

ROLE_CONDITIONS: Final = {
    Role.PREFILL: ConditionType.PREFILL,
    Role.DECODE: ConditionType.DECODE,
    Role.COLOCATED: ConditionType.COLOCATED,
}
# Shown of a deployment that has no shape yet.
_USUAL_ROLES: Final = (Role.PREFILL, Role.DECODE)


def verdicts_of(situation: Situation) -> Verdicts:
    """All conditions of a deployment that has a shape."""
    if situation.untouched is not None:
        roles = tuple(one.role for one in situation.roles)
        return verdicts_without_children(situation.placement, situation.untouched, roles)
    verdicts = {one.role: role_verdict(one) for one in situation.roles}
    return _sum_up(_serving(situation), situation.placement, verdicts, gateway_verdict(situation))


def verdicts_without_children(
    placement: Verdict, untouched: Verdict, roles: tuple[Role, ...] = _USUAL_ROLES
) -> Verdicts:
    """All conditions while no child is made or changed; `untouched` says why not."""
    return _sum_up("", placement, dict.fromkeys(roles, untouched), untouched)


def verdicts_of_invalid_spec(message: str) -> Verdicts:
    """All conditions of a deployment whose spec is not understood."""
    return verdicts_without_children(Verdict(State.FALSE, "SpecInvalid", message, permanent=True), NOT_PLACED)


def _sum_up(serving: str, placement: Verdict, roles: Mapping[Role, Verdict], gateway: Verdict) -> Verdicts:
    of_roles = {ROLE_CONDITIONS[role]: verdict for role, verdict in roles.items()}
    parts = {ConditionType.PLACEMENT: placement, **of_roles, ConditionType.GATEWAY: gateway}
    return {ConditionType.READY: _ready(parts, serving), **parts, **_progress(parts)}


def _ready(parts: Verdicts, serving: str) -> Verdict:
    """Every role and the gateway, at the current generation, so at least one usable pair (B17, B30)."""
    for kind, verdict in parts.items():
        if not verdict.holds:
            return Verdict(State.FALSE, verdict.reason, f"{kind} is {verdict.state}: {verdict.message}")
    return Verdict(State.TRUE, "Serving", serving)


def _serving(situation: Situation) -> str:
    deployment = situation.deployment
    return f"{deployment.placement} serves {deployment.model.served_name} at {deployment_endpoint(deployment)}"


def _progress(parts: Verdicts) -> Verdicts:
    obstacle = next(((kind, v) for kind, v in parts.items() if v.permanent), None)
    if obstacle is not None:
        kind, verdict = obstacle
        return {
            ConditionType.RECONCILING: Verdict(State.FALSE, "Stalled", "nothing more can be done without a person"),
            ConditionType.STALLED: Verdict(State.TRUE, verdict.reason, f"{kind} is {verdict.state}: {verdict.message}"),
        }
    free = Verdict(State.FALSE, "NoObstacle", "nothing keeps the operator from getting further")
    waiting = next(((kind, v) for kind, v in parts.items() if not v.holds and v is not PLAN_ONLY), None)
    if waiting is None:
        settled = Verdict(State.FALSE, "Settled", "everything is as the spec wants it")
        return {ConditionType.RECONCILING: settled, ConditionType.STALLED: free}
    kind, verdict = waiting
    working = Verdict(State.TRUE, verdict.reason, f"{kind} is {verdict.state}: {verdict.message}")
    return {ConditionType.RECONCILING: working, ConditionType.STALLED: free}
