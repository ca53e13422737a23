"""What a pod was asked to run, as the operator that made it wrote it down.

The pod itself does not tell: image, pull policy and pull secrets may be changed by admission.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from distserve_operator.api.settings import ImageSource

ANNOTATION_IMAGE: Final = "distserve.io/image-source"


def image_annotation(source: ImageSource) -> dict[str, str]:
    """The annotation that `read_image` reads."""
    fields = {"image": source.image, "pullPolicy": source.pull_policy, "pullSecrets": list(source.pull_secrets)}
    return {ANNOTATION_IMAGE: json.dumps(fields)}


def read_image(metadata: Mapping[str, Any]) -> ImageSource | None:
    """The source that an object was made with; None when it does not say so any more."""
    try:
        found = json.loads((metadata.get("annotations") or {}).get(ANNOTATION_IMAGE, ""))
    except ValueError:
        return None
    match found:
        case {"image": str(image), "pullPolicy": str(policy), "pullSecrets": [*secrets]}:
            return ImageSource(image, policy, tuple(map(str, secrets)))
    return None
