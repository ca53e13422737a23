"""Mistral: all layers, or those that layer_types names, may have a sliding window."""

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.families.windows import read_windows
from distserve_worker.weights.fields import Fields


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    return read_rotary(Architecture.MISTRAL, fields, eos, windows=read_windows(fields))
