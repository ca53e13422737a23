"""Llama 2 and 3."""

from distserve_worker.weights.config import Architecture, ModelConfig
from distserve_worker.weights.families.rotary import read_rotary
from distserve_worker.weights.fields import Fields


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    return read_rotary(
        Architecture.LLAMA,
        fields,
        eos,
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )
