"""The whole `status` of a DistServeDeployment."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from distserve_operator.api.deployment import Wanted
from distserve_operator.conditions.condition import Verdicts, render
from distserve_operator.conditions.decision import NOT_PLACED, Decision
from distserve_operator.conditions.memory import Memory, memory_of
from distserve_operator.conditions.overall import verdicts_of, verdicts_of_invalid_spec, verdicts_without_children
from distserve_operator.conditions.situation import RoleSituation, Situation, deployment_endpoint
from distserve_proto.contract import Role


def status_of(situation: Situation, memory: Memory, previous: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Status after a pass; `previous` is the status before it."""
    deployment = situation.deployment
    status = _base(verdicts_of(situation), deployment.generation, previous, now) | memory
    status |= {
        "servedName": deployment.model.served_name,
        **{str(one.role): _counts(one) for one in situation.roles},
        str(Role.GATEWAY): _gateway_counts(situation),
    }
    if "serving" in memory:
        status["endpoint"] = deployment_endpoint(deployment)
    return status


def status_without_children(
    wanted: Wanted, decision: Decision, memory: Memory, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Status while there has never been a shape, so that nothing was made."""
    verdicts = verdicts_without_children(decision.verdict, decision.untouched or NOT_PLACED)
    return _base(verdicts, wanted.generation, previous, now) | memory | {"servedName": wanted.model.served_name}


def status_of_invalid_spec(message: str, generation: int, previous: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Status of a deployment whose spec is not understood."""
    return _base(verdicts_of_invalid_spec(message), generation, previous, now) | memory_of(previous)


def _base(verdicts: Verdicts, generation: int, previous: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    conditions = render(verdicts, generation, previous.get("conditions") or (), now)
    return {"observedGeneration": generation, "conditions": conditions}


def _counts(situation: RoleSituation) -> dict[str, int]:
    alive = situation.alive
    return {"replicas": len(alive), "ready": sum(pod.ready for pod in alive), "updated": len(situation.updated)}


def _gateway_counts(situation: Situation) -> dict[str, int]:
    gateway = situation.fleet.gateway
    if gateway is None:
        return {"replicas": 0, "ready": 0, "updated": 0}
    return {"replicas": gateway.replicas, "ready": gateway.ready, "updated": gateway.updated}
