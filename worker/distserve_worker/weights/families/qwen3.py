"""Qwen 3."""

from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.families.windows import read_qwen_windows
from distserve_worker.weights.fields import Fields

_KV_HEADS: Final = 32
_HEAD_DIM: Final = 128


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    return read_rotary(
        Architecture.QWEN3,
        fields,
        eos,
        kv_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        windows=read_qwen_windows(fields),
        attention_bias=fields.flag("attention_bias", False),
    )
