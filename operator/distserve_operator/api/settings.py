"""What the operator is told at start about the pods that it makes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image and how the kubelet gets it; `pull_secrets` are names."""

    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """What pods run and which ClusterRole gateways are bound to; the same for every deployment."""

    worker: ImageSource
    gateway: ImageSource
    gateway_cluster_role: str
