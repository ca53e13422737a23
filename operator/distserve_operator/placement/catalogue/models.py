"""Models by name."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from distserve_operator.placement.catalogue.building import build_shape
from distserve_operator.placement.catalogue.data import content_of
from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.model import ModelShape, WeightType

# said of a model's training, files or quantization; none of it changes the shape
_QUANTIZATION: Final = re.compile(r"[-.](i?q\d[a-z0-9-]*|b?f16|f32|fp16|fp32|int8|8bit)$")
_DESCRIPTORS: Final = frozenset({"instruct", "chat", "base", "hf", "it", "gguf"})


def model_names() -> tuple[str, ...]:
    """All models that `model_shape` knows, aliases not."""
    return tuple(name for family in content_of("models.yaml") for name in family["models"])


def model_shape(name: str, weight_type: WeightType | None = None) -> ModelShape:
    """The model of this name, in any case; `facebook/opt-13b` and `Llama-2-7b-chat-hf` are names as well.

    `weight_type` None: the one that it is published in. Raises `UnknownModelError`.
    """
    found = known_model(name, weight_type)
    if found is None:
        raise UnknownModelError("model", name, model_names())
    return found


def known_model(name: str, weight_type: WeightType | None = None) -> ModelShape | None:
    """As `model_shape`, but None for a name that is not known."""
    entry = _by_key().get(_key(name))
    return None if entry is None else _shape(*entry, weight_type)


def names_of(shape: ModelShape) -> tuple[str, ...]:
    """What a model may be called: its own name first, then those of the known models that have just its numbers."""
    same = (one.name for one in map(model_shape, model_names()) if _numbers(one) == _numbers(shape))
    return shape.name, *(name for name in same if name.lower() != shape.name.lower())


def _numbers(shape: ModelShape) -> ModelShape:
    """The shape alone, whatever it is called and stored in."""
    return replace(shape, name="", weight_type="FP16", kv_bytes=2, positions=0)


@cache
def _by_key() -> dict[str, tuple[str, Mapping[str, Any]]]:
    entries: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for family in content_of("models.yaml"):
        for name, own in family["models"].items():
            fields = {**family, **own}
            for alias in (name, *own.get("aliases", ())):
                entries[_key(alias)] = (name, fields)
    return entries


def _key(name: str) -> str:
    """What is left of a name without organisation, case, file type and descriptors."""
    plain = name.rpartition("/")[2].lower().replace("_", "-").removesuffix(".gguf")
    plain = _QUANTIZATION.sub("", plain).removeprefix("meta-")
    return "-".join(token for token in plain.split("-") if token not in _DESCRIPTORS)


def _shape(name: str, fields: Mapping[str, Any], weight_type: WeightType | None) -> ModelShape:
    return build_shape(
        name,
        weight_type or fields["weightType"],
        layers=fields["layers"],
        hidden=fields["hidden"],
        heads=fields["heads"],
        ffn=fields["ffn"],
        vocabulary=fields["vocabulary"],
        positions=fields["positions"],
        gated_ffn=fields["gatedFfn"],
        learned_positions=fields["learnedPositions"],
        tied_embeddings=fields["tiedEmbeddings"],
        kv_heads=fields.get("kvHeads"),
        head_dim=fields.get("headDim"),
    )
