"""Children other than worker pods: who owns them and what was last applied to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from distserve_operator.api.settings import ImageSource
from distserve_operator.observed.images import read_image
from distserve_operator.observed.metadata import controller, is_controlled_by

ANNOTATION_INPUTS: Final = "distserve.io/inputs-hash"
ANNOTATION_RENDERED: Final = "distserve.io/rendered-hash"


@dataclass(frozen=True, slots=True)
class Child:
    """A Deployment, Service, ServiceAccount or RoleBinding as it is in the cluster.

    `inputs_hash` covers what was asked for, `rendered_hash` the manifest that an operator made of it. `source` is what
    its pods run, None when it has none.
    """

    kind: str
    name: str
    uid: str
    owned: bool
    owner: str
    terminating: bool
    inputs_hash: str
    rendered_hash: str
    source: ImageSource | None
    body: Mapping[str, Any]


def parse_child(kind: str, body: Mapping[str, Any], deployment_uid: str) -> Child:
    """The view of an object; `owned` says whether it belongs to the deployment with `deployment_uid`."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    return Child(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        owned=is_controlled_by(metadata, deployment_uid),
        owner=describe_owner(metadata),
        terminating="deletionTimestamp" in metadata,
        inputs_hash=annotations.get(ANNOTATION_INPUTS, ""),
        rendered_hash=annotations.get(ANNOTATION_RENDERED, ""),
        source=read_image(metadata),
        body=body,
    )


def describe_owner(metadata: Mapping[str, Any]) -> str:
    """Who manages an object, for people."""
    owner = controller(metadata)
    return "nobody" if owner is None else f"{owner['kind']} {owner['name']}"
