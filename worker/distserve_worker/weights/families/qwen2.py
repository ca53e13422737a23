"""Qwen 2 and 2.5."""

from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.families.windows import read_qwen_windows
from distserve_worker.weights.fields import Fields

_KV_HEADS: Final = 32


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    return read_rotary(Architecture.QWEN2, fields, eos, kv_heads=_KV_HEADS, windows=read_qwen_windows(fields))
