"""How far the gateway's Deployment has come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Counts of pods; `current` says whether the Deployment controller has seen the newest template."""

    replicas: int
    ready: int
    updated: int
    current: bool


def parse_gateway(deployment: Mapping[str, Any]) -> GatewayState:
    """Read an `apps/v1` Deployment."""
    status = deployment.get("status") or {}
    return GatewayState(
        replicas=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        updated=status.get("updatedReplicas", 0),
        current=status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 1),
    )
