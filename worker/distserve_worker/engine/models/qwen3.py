"""Qwen 3: every query and key head is normalised."""

from typing import Final

from distserve_worker.engine.models.decoder import Decoder
from distserve_worker.engine.models.gated_decoder import BASE, BUFFERS, Switches, gated_decoder
from distserve_worker.engine.models.interface import Family, Place, Weights
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.families.rotary import RotaryConfig


def build(config: ModelConfig, weights: Weights, place: Place) -> Decoder:
    """The part of the model that `place` has. Raises `ModelInvalid`."""
    assert isinstance(config, RotaryConfig)
    switches = Switches(
        qkv_bias=config.attention_bias,
        output_bias=config.attention_bias,
        heads_norm=True,
    )
    return gated_decoder(config, weights, place, switches)


FAMILY: Final = Family(build, BASE, BUFFERS)
