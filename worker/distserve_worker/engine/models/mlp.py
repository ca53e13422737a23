"""The part of a layer that sees each token by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch.nn.functional import gelu, relu, silu

from distserve_worker.engine.models.interface import Place, Weights
from distserve_worker.engine.models.linear import Linear, Outputs, Storage, column_parallel, row_parallel
from distserve_worker.weights.config import Activation, ModelConfig

_ACTIVATIONS: Final[Mapping[Activation, Callable[[torch.Tensor], torch.Tensor]]] = {
    Activation.GELU: gelu,
    Activation.GELU_NEW: partial(gelu, approximate="tanh"),
    Activation.GELU_TANH: partial(gelu, approximate="tanh"),
    Activation.RELU: relu,
    Activation.SILU: silu,
}


@dataclass(frozen=True, slots=True)
class Mlp:
    """Up, activation, down."""

    up: Linear
    activation: Callable[[torch.Tensor], torch.Tensor]
    down: Linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, hidden] → [n, hidden]."""
        return self.down(self.activation(self.up(x)))


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """Up multiplied by the activated gate, down; gate and up are one matrix, the gate first."""

    gate_up: Linear
    activation: Callable[[torch.Tensor], torch.Tensor]
    down: Linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, hidden] → [n, hidden]."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up))


def take_mlp(
    config: ModelConfig, weights: Weights, place: Place, up: str, down: str, *, bias: bool, transposed: bool = False
) -> Mlp:
    """The matrices `up` and `down`."""
    mine = place.shard.part(config.ffn)
    pieces = (Outputs(up, config.ffn, mine.start, mine.stop),)
    return Mlp(
        column_parallel(weights, place, pieces, Storage(config.hidden, bias, transposed)),
        _ACTIVATIONS[config.activation],
        row_parallel(weights, place, down, config.hidden, mine, Storage(config.ffn, bias, transposed)),
    )


def take_gated_mlp(config: ModelConfig, weights: Weights, place: Place, prefix: str, *, bias: bool) -> GatedMlp:
    """The matrices gate_proj, up_proj and down_proj under `prefix`."""
    mine = place.shard.part(config.ffn)
    pieces = [Outputs(prefix + name, config.ffn, mine.start, mine.stop) for name in ("gate_proj", "up_proj")]
    return GatedMlp(
        column_parallel(weights, place, pieces, Storage(config.hidden, bias)),
        _ACTIVATIONS[config.activation],
        row_parallel(weights, place, prefix + "down_proj", config.hidden, mine, Storage(config.ffn, bias)),
    )
