"""Waits for a DistServeDeployment to be Ready and shows its conditions as they change."""

import time
from collections.abc import Mapping
from typing import Any

from distserve_cli.demo.cluster_commands import ClusterCommands
from distserve_cli.demo.narration import StepFailed, say

POLL_SECONDS = 0.3


def wait_until_ready(cluster: ClusterCommands, name: str, timeout_seconds: float) -> None:
    """Return when `Ready` is True for the current generation.

    Raises:
        StepFailed: at once when the operator says that it cannot get further (`Stalled`), else at the deadline.
    """
    deadline = time.monotonic() + timeout_seconds
    shown: dict[str, str] = {}
    while True:
        deployment = cluster.get("distservedeployment", name)
        conditions = current_conditions(deployment)
        for line in changes(shown, conditions):
            say(line)
        if conditions.get("Ready", {}).get("status") == "True":
            return
        stalled = conditions.get("Stalled", {})
        if stalled.get("status") == "True":
            raise StepFailed(f"{name} is stalled: {stalled['reason']}: {stalled['message']}", _look(name))
        if time.monotonic() > deadline:
            raise StepFailed(f"{name} was not Ready within {timeout_seconds:.0f} s", _look(name))
        time.sleep(POLL_SECONDS)


def current_conditions(deployment: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Conditions by type, those of an older generation left out."""
    generation = deployment["metadata"]["generation"]
    conditions = deployment.get("status", {}).get("conditions", [])
    return {c["type"]: c for c in conditions if c.get("observedGeneration") == generation}


def changes(shown: dict[str, str], conditions: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for every condition that is not as `shown` has it; `shown` is brought up to date."""
    lines = []
    for kind, condition in conditions.items():
        line = f"{kind:<15} {condition['status']:<7} {condition['reason']}: {condition.get('message', '')}"
        if shown.get(kind) != line:
            shown[kind] = line
            lines.append(line)
    return lines


def _look(name: str) -> str:
    return f"kubectl describe dsd {name}; kubectl get pods; kubectl logs POD"
