"""Mistral: no biases; its sliding window is in the configuration."""

from typing import Final

from distserve_worker.engine.models.decoder import Decoder
from distserve_worker.engine.models.gated_decoder import BASE, BUFFERS, Switches, gated_decoder
from distserve_worker.engine.models.interface import Family, Place, Weights
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.families.rotary import RotaryConfig


def build(config: ModelConfig, weights: Weights, place: Place) -> Decoder:
    """The part of the model that `place` has. Raises `ModelInvalid`."""
    assert isinstance(config, RotaryConfig)
    return gated_decoder(config, weights, place, Switches())


FAMILY: Final = Family(build, BASE, BUFFERS)
