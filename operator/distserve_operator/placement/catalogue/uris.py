"""Models by the URI of their weights."""

import re
from typing import Final

from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.catalogue.models import known_model, model_names
from distserve_operator.placement.model import ModelShape, WeightType

_FORMS: Final = re.compile(r"(hf|pvc|file)://(.+)")
_SHARD: Final = re.compile(r"-\d+-of-\d+(?=\.gguf$)")


def model_of_uri(uri: str, weight_type: WeightType | None = None) -> ModelShape:
    """The model that `hf://organisation/name[@revision]`, `pvc://claim/path` or `file:///path` names.

    Of a path the file counts first, then the folders around it. `weight_type` None: the one that the model is published
    in. Raises `UnknownModelError`.
    """
    form = _FORMS.fullmatch(uri)
    if form is None:
        raise UnknownModelError("model", uri, model_names())
    parts = _parts(form[1], form[2])
    for part in parts:
        found = known_model(part, weight_type)
        if found is not None:
            return found
    raise UnknownModelError("model", parts[0], model_names())


def _parts(scheme: str, rest: str) -> list[str]:
    """Names that the URI gives, the likeliest first."""
    if scheme == "hf":
        return [rest.partition("@")[0]]
    folders = [part for part in rest.split("/") if part]
    if scheme == "pvc":
        folders = folders[1:] or folders
    return [_SHARD.sub("", part) for part in reversed(folders)] or [rest]
