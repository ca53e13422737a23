"""One worker pod as the planner and the conditions see it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from distserve_operator.api.settings import ImageSource
from distserve_operator.names import PodIdentity, identity_of
from distserve_operator.observed.images import read_image
from distserve_operator.observed.metadata import parse_time
from distserve_operator.observed.problems import Problem, find_problem
from distserve_proto.contract import LABEL_INSTANCE, LABEL_ROLE, LABEL_SEGMENT, LABEL_TEMPLATE_HASH

ANNOTATION_DEVICES: Final = "distserve.io/devices"
_ENDED: Final = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """A pod that this deployment controls.

    `identity` is None when we did not give it its name. `labelled` says whether its labels are still those of its
    identity. `source` is what it was made with. `started`: it has been ready since its container was last started.
    `deadline` is when a pod that is being deleted ought to be gone.
    """

    name: str
    uid: str
    identity: PodIdentity | None
    labelled: bool
    devices: int
    source: ImageSource | None
    ready: bool
    started: bool
    ended: bool
    created: datetime
    ended_at: datetime | None
    deadline: datetime | None
    problem: Problem | None

    @property
    def role(self) -> str:
        """The role in its name."""
        return "" if self.identity is None else self.identity.role

    @property
    def template_hash(self) -> str:
        """The template in its name."""
        return "" if self.identity is None else self.identity.template_hash

    @property
    def attempt(self) -> int:
        """The attempt in its name."""
        return 0 if self.identity is None else self.identity.attempt

    @property
    def instance(self) -> int | None:
        """The instance in its name."""
        return None if self.identity is None else self.identity.instance

    @property
    def terminating(self) -> bool:
        """Whether somebody asked for its deletion."""
        return self.deadline is not None

    @property
    def alive(self) -> bool:
        """Whether it serves or may still come to serve."""
        return not self.ended and not self.terminating


def parse_pod(body: Mapping[str, Any]) -> WorkerPod:
    """The view of a pod that the API delivered."""
    metadata, status = body["metadata"], body.get("status") or {}
    annotations, identity = metadata.get("annotations") or {}, identity_of(metadata["name"])
    deletion, created = metadata.get("deletionTimestamp"), parse_time(metadata["creationTimestamp"])
    ended = status.get("phase") in _ENDED
    alive = not ended and deletion is None
    return WorkerPod(
        name=metadata["name"],
        uid=metadata["uid"],
        identity=identity,
        labelled=identity is not None and identity_labels(identity).items() <= (metadata.get("labels") or {}).items(),
        devices=_number(annotations.get(ANNOTATION_DEVICES)) or 1,
        source=read_image(metadata),
        ready=alive and is_ready(status),
        started=has_started(status),
        ended=ended,
        created=created,
        ended_at=_ended_at(status, created) if ended else None,
        deadline=parse_time(deletion) if deletion else None,
        problem=find_problem(body),
    )


def identity_labels(identity: PodIdentity) -> dict[str, str]:
    """The labels by which others find a worker pod."""
    return {
        LABEL_ROLE: identity.role,
        LABEL_INSTANCE: str(identity.instance),
        LABEL_SEGMENT: str(identity.segment),
        LABEL_TEMPLATE_HASH: identity.template_hash,
    }


def is_ready(status: Mapping[str, Any]) -> bool:
    """Whether the kubelet calls a pod with this status ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def has_started(status: Mapping[str, Any]) -> bool:
    """Whether the startup probe has passed, which asks for readiness, since the containers were last started."""
    containers = status.get("containerStatuses") or ()
    return bool(containers) and all(container.get("started") for container in containers)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _ended_at(status: Mapping[str, Any], created: datetime) -> datetime:
    """When the last container ended; an evicted pod without containers counts from its last change of condition."""
    ends = [
        container["state"]["terminated"].get("finishedAt")
        for container in status.get("containerStatuses") or ()
        if "terminated" in container.get("state", {})
    ]
    changes = [condition.get("lastTransitionTime") for condition in status.get("conditions") or ()]
    return max((parse_time(text) for text in (*ends, *changes) if text), default=created)
