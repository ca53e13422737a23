"""Mistral: all layers, or those that layer_types names, may have a sliding window."""

from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.families.windows import read_windows
from distserve_worker.weights.fields import Fields

_KV_HEADS: Final = 8


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    return read_rotary(Architecture.MISTRAL, fields, eos, kv_heads=_KV_HEADS, windows=read_windows(fields))
