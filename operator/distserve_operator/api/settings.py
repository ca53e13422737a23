"""What the operator is told at start about the pods that it makes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """Images of the pods and the ClusterRole that gateways are bound to; the same for every deployment."""

    worker_image: str
    gateway_image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    gateway_cluster_role: str
