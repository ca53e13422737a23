"""What a pass may do to the cluster; `why` is for the log and the event."""

from collections.abc import Mapping
from dataclasses import dataclass

from distserve_operator.manifests.child import DesiredChild
from distserve_proto.contract import Role


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a worker pod of the role's current template."""

    role: Role
    instance: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Ask a worker pod to drain and end."""

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class RelabelPod:
    """Give a worker pod the labels of its identity again."""

    name: str
    uid: str
    labels: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Create or correct an object; `uid` is of the one that was seen, None when none was."""

    child: DesiredChild
    uid: str | None
    why: str


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Remove an object of ours that should no longer exist, or that must be made anew."""

    kind: str
    name: str
    uid: str
    why: str


Action = CreatePod | DeletePod | RelabelPod | ApplyChild | DeleteChild
