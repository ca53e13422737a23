"""Rotary embedding out of GGUF metadata, which means what llama.cpp reads in it."""

import struct
from collections.abc import Mapping
from typing import Any, Final, cast

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_header import GgufHeader
from distserve_worker.weights.gguf_metadata import GgufMetadata
from distserve_worker.weights.rope_scaling import Rope, RopeBase, scaled_rope

ROPE_FACTORS: Final = "rope_freqs.weight"
_F32: Final = 0
_SCALING: Final = "rope.scaling."
_TYPES: Final = ("none", "linear", "yarn")
_READ: Final = frozenset({"type", "factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow"})
_ABOUT_THE_TRAINING: Final = frozenset({"finetuned"})
# What nothing here computes, and the value with which there is nothing to compute. What YaRN mixes in is `ext_factor`.
_IDLE: Final[Mapping[str, float]] = {
    "attn_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_log_multiplier": 0.0,
    "alpha": 0.0,
}
_IDLE_MIX: Final[Mapping[str, float]] = {"none": 0.0, "linear": 0.0, "yarn": 1.0}


def rope_of_gguf(header: GgufHeader, metadata: GgufMetadata, base: RopeBase) -> Rope:
    """How the heads of `base` are turned. Raises `ModelInvalid` for what would be turned in another way."""
    _require_whole_heads(metadata, base.head_dim)
    rope, factors = _scaled(metadata, base), _factors(header)
    if factors is None:
        return rope
    if rope.divisors is not None:
        raise ModelInvalid(f"{metadata.where}: {ROPE_FACTORS} beside {metadata.name(_SCALING)}*: {_fix('one of them')}")
    return Rope(base.theta, factors)


def _require_whole_heads(metadata: GgufMetadata, head_dim: int) -> None:
    key = "rope.dimension_count"
    turned = metadata.number(key, head_dim)
    if turned != head_dim:
        name = metadata.name(key)
        raise ModelInvalid(f"{metadata.where}: {name} is {turned:g}, it must be the size of a head, {head_dim}")


def _scaled(metadata: GgufMetadata, base: RopeBase) -> Rope:
    kind, factor = _kind(metadata), _factor(metadata)
    _require_idle(metadata, kind)
    if kind == "none" or factor is None:
        return Rope(base.theta)
    scaling: dict[str, Any] = {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        scaling |= {
            "original_max_position_embeddings": metadata.get(f"{_SCALING}original_context_length"),
            "beta_fast": metadata.get(f"{_SCALING}yarn_beta_fast"),
            "beta_slow": metadata.get(f"{_SCALING}yarn_beta_slow"),
        }
    return scaled_rope(scaling, base, metadata.where)


def _kind(metadata: GgufMetadata) -> str:
    """Linear where it is not stated."""
    key = f"{_SCALING}type"
    kind = metadata.get(key)
    if kind is None:
        return "linear"
    if kind not in _TYPES:
        known = ", ".join(_TYPES)
        raise ModelInvalid(f"{metadata.where}: {metadata.name(key)} {kind!r:.80} is not known (known: {known})")
    return str(kind)


def _factor(metadata: GgufMetadata) -> float | None:
    """As it is written now, or was; 0 stands for none. A type that is stated needs one."""
    stated, former = f"{_SCALING}factor", "rope.scale_linear"
    key = former if metadata.get(stated) is None and metadata.get(former) is not None else stated
    optional = metadata.get(f"{_SCALING}type") in (None, "none")
    return metadata.number(key, 0.0 if optional else None) or None


def _require_idle(metadata: GgufMetadata, kind: str) -> None:
    idle = {**_IDLE, "yarn_ext_factor": _IDLE_MIX[kind]}
    for key in metadata.keys(_SCALING):
        name = key.removeprefix(_SCALING)
        if name in _READ | _ABOUT_THE_TRAINING:
            continue
        if name not in idle:
            raise ModelInvalid(f"{metadata.where}: {metadata.name(key)} is not known: {_fix('none')}")
        if metadata.number(key) != idle[name]:
            value = metadata.get(key)
            raise ModelInvalid(f"{metadata.where}: {metadata.name(key)} is {value}: {_fix(f'{idle[name]:g}, or none')}")


def _fix(allowed: str) -> str:
    return f"there must be {allowed}; the model's Hugging Face folder may say the same in fields that are known"


def _factors(header: GgufHeader) -> tuple[float, ...] | None:
    """Converters store Llama 3's scaled frequencies as a tensor of divisors."""
    tensor = header.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return None
    if tensor.ggml_type != _F32:
        raise ModelInvalid(f"{header.path}: {ROPE_FACTORS} is not FP32")
    form = struct.Struct(f"<{tensor.shape[0]}f")
    if tensor.offset + form.size > header.path.stat().st_size:
        raise ModelInvalid(f"{header.path}: the file ends inside tensor {ROPE_FACTORS}")
    with header.path.open("rb") as file:
        file.seek(tensor.offset)
        return cast("tuple[float, ...]", form.unpack(file.read(form.size)))
