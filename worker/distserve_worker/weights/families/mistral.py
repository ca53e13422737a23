"""Mistral: every layer may have the same sliding window."""

from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.fields import Fields

_WINDOW: Final = 4096  # where the field is not written at all; null means none


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    windows = (_window(fields),) * fields.count("num_hidden_layers", "layers")
    return read_rotary(Architecture.MISTRAL, fields, eos, windows=windows)


def _window(fields: Fields) -> int | None:
    if fields.is_null("sliding_window"):
        return None
    return fields.count("sliding_window", "max_positions", _WINDOW)
