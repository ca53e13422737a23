"""How far the gateway has come: its Deployment and its pods."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distserve_operator.observed.metadata import controller
from distserve_operator.observed.pods import has_started, is_ready
from distserve_operator.observed.problems import Problem, find_problem

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Counts of pods; `current` says whether the Deployment controller has seen the newest template.

    `started`: there are pods, and each has been ready since its container was last started.
    """

    replicas: int
    ready: int
    updated: int
    current: bool
    started: bool


@dataclass(frozen=True, slots=True)
class GatewayPod:
    """A ready pod, which can be asked; `address` is its IP address."""

    name: str
    address: str


def parse_gateway(deployment: Body, pods: Collection[Body]) -> GatewayState:
    """Read an `apps/v1` Deployment and its pods."""
    status = deployment.get("status") or {}
    return GatewayState(
        replicas=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        updated=status.get("updatedReplicas", 0),
        current=status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 1),
        started=bool(pods) and all(has_started(pod.get("status") or {}) for pod in pods),
    )


def pods_of_gateway(pods: Iterable[Body], deployment: str) -> list[Body]:
    """Those that the Deployment of this name keeps; they belong to its ReplicaSets, which have its name and a hash."""
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and _grandparent(pod) == deployment]


def ready_pod(pods: Iterable[Body]) -> GatewayPod | None:
    """The youngest ready one: it is the last to have found the workers."""
    found = [pod for pod in pods if is_ready(pod["status"]) and pod["status"].get("podIP")]
    youngest = max(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]), default=None)
    return None if youngest is None else GatewayPod(youngest["metadata"]["name"], youngest["status"]["podIP"])


def gateway_problem(deployment: Body, pods: Iterable[Body]) -> Problem | None:
    """The worst problem of any pod, one that could not be made included."""
    problems = [(pod["metadata"]["name"], find_problem(pod)) for pod in pods]
    found = [
        Problem(problem.reason, f"{name}: {problem.message}", problem.permanent)
        for name, problem in problems
        if problem is not None
    ]
    refusal = _refusal(deployment)
    return max([*refusal, *found], key=lambda problem: problem.permanent, default=None)


def _refusal(deployment: Body) -> list[Problem]:
    """The Deployment controller makes the pods, so it is the one who is refused, as by a quota or an admission hook."""
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return [
        Problem(
            "PodRefused", f"a pod of {deployment['metadata']['name']} cannot be made: {condition.get('message', '')}"
        )
        for condition in conditions
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True"
    ]


def _grandparent(pod: Body) -> str | None:
    owner = controller(pod["metadata"])
    if owner is None or owner.get("kind") != "ReplicaSet":
        return None
    return str(owner["name"]).rpartition("-")[0]
