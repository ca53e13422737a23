"""One worker pod as the planner and the conditions see it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from distserve_operator.names import attempt_of
from distserve_operator.observed.metadata import parse_time
from distserve_operator.observed.problems import Problem, find_problem
from distserve_proto.contract import LABEL_INSTANCE, LABEL_ROLE, LABEL_TEMPLATE_HASH

ANNOTATION_DEVICES: Final = "distserve.io/devices"
_ENDED: Final = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """A pod that this deployment controls.

    `role` is the label's text and `instance` may be missing: we own it whatever it is labelled. `deadline` is when a
    pod that is being deleted ought to be gone.
    """

    name: str
    uid: str
    role: str
    instance: int | None
    template_hash: str
    attempt: int
    devices: int
    ready: bool
    ended: bool
    created: datetime
    ended_at: datetime | None
    deadline: datetime | None
    problem: Problem | None

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
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    deletion, created = metadata.get("deletionTimestamp"), parse_time(metadata["creationTimestamp"])
    ended = status.get("phase") in _ENDED
    alive = not ended and deletion is None
    return WorkerPod(
        name=metadata["name"],
        uid=metadata["uid"],
        role=labels.get(LABEL_ROLE, ""),
        instance=_number(labels.get(LABEL_INSTANCE)),
        template_hash=labels.get(LABEL_TEMPLATE_HASH, ""),
        attempt=attempt_of(metadata["name"]),
        devices=_number(annotations.get(ANNOTATION_DEVICES)) or 1,
        ready=alive and _is_ready(status),
        ended=ended,
        created=created,
        ended_at=_ended_at(status, created) if ended else None,
        deadline=parse_time(deletion) if deletion else None,
        problem=find_problem(status),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def _ended_at(status: Mapping[str, Any], created: datetime) -> datetime:
    """When the last container ended; an evicted pod without containers counts from its last change of condition."""
    ends = [
        container["state"]["terminated"].get("finishedAt")
        for container in status.get("containerStatuses") or ()
        if "terminated" in container.get("state", {})
    ]
    changes = [condition.get("lastTransitionTime") for condition in status.get("conditions") or ()]
    return max((parse_time(text) for text in (*ends, *changes) if text), default=created)
