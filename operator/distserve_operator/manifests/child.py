"""An object that is applied again and again, with the hashes by which the planner sees what changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distserve_operator.manifests.hashing import hash_of
from distserve_operator.observed.children import ANNOTATION_INPUTS, ANNOTATION_RENDERED


@dataclass(frozen=True, slots=True)
class DesiredChild:
    """`inputs_hash` covers what was asked for; `rendered_hash` the manifest that this operator version makes of it.

    `rolls_pods`: applying another rendering restarts pods, so it waits for a change of the inputs (B26).
    """

    kind: str
    name: str
    manifest: Mapping[str, Any]
    inputs_hash: str
    rendered_hash: str
    rolls_pods: bool = False


def desired_child(
    manifest: dict[str, Any], inputs: Mapping[str, Any] | None = None, *, rolls_pods: bool = False
) -> DesiredChild:
    """Stamp the hashes on `manifest`; without `inputs` the manifest itself is what was asked for."""
    rendered = hash_of(manifest)
    asked = rendered if inputs is None else hash_of(inputs)
    metadata = manifest["metadata"]
    hashes = {ANNOTATION_INPUTS: asked, ANNOTATION_RENDERED: rendered}
    stamped = manifest | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | hashes}}
    return DesiredChild(manifest["kind"], metadata["name"], stamped, asked, rendered, rolls_pods)
