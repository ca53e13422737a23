"""Which pods of a deployment can be sent requests: pure, from what the API server says about them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from distserve_proto.addresses import format_address
from distserve_proto.contract import LABEL_DEPLOYMENT, LABEL_ROLE, LABEL_SEGMENT, WORKER_GRPC_PORT, WORKER_ROLES
from distserve_worker.gateway.workers.attaching import Target

Pod = Mapping[str, Any]

# Only the rank that holds the first segment takes requests; KV is pulled from every rank.
FIRST_SEGMENT: Final = "0"


def selector(deployment: str) -> str:
    """Labels of the worker pods of one deployment; pods of others are never seen."""
    return f"{LABEL_DEPLOYMENT}={deployment},{LABEL_ROLE} in ({','.join(WORKER_ROLES)})"


def target(pod: Pod) -> Target | None:
    """Where the pod takes requests; None while it must not get any."""
    metadata, status = pod["metadata"], pod.get("status", {})
    address = status.get("podIP")
    if not address or metadata.get("deletionTimestamp") or status.get("phase") != "Running":
        return None
    if metadata.get("labels", {}).get(LABEL_SEGMENT, FIRST_SEGMENT) != FIRST_SEGMENT or not _ready(status):
        return None
    return Target(metadata["name"], format_address(address, WORKER_GRPC_PORT), metadata["uid"])


@dataclass(frozen=True, slots=True)
class PodView:
    """The pods as last heard of, by name, and the version of the list from which a watch goes on."""

    targets: Mapping[str, Target]
    version: str

    @classmethod
    def listed(cls, pods: Iterable[Pod], version: str) -> "PodView":
        """A complete list: what it does not hold is gone."""
        known = ((pod["metadata"]["name"], target(pod)) for pod in pods)
        return cls({name: found for name, found in known if found is not None}, version)

    def after(self, kind: str, pod: Pod) -> "PodView":
        """The view after one event of the watch: ADDED, MODIFIED, DELETED or BOOKMARK."""
        version = str(pod["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return PodView(self.targets, version)
        name = pod["metadata"]["name"]
        others = {other: known for other, known in self.targets.items() if other != name}
        found = None if kind == "DELETED" else target(pod)
        return PodView(others if found is None else others | {name: found}, version)


def _ready(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
