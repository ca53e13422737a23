"""Qwen 2 and 2.5."""

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.families.windows import read_qwen_windows
from distserve_worker.weights.fields import Fields


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    return read_rotary(Architecture.QWEN2, fields, eos, windows=read_qwen_windows(fields))
