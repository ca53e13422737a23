"""Normalisation of hidden states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import layer_norm, rms_norm

from distserve_worker.engine.models.interface import Weights


class Norm(Protocol):
    """Normalises the last dimension."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """A new tensor of the shape of `x`."""
        ...


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root mean square normalisation with a learned scale."""

    weight: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Norm`."""
        return rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class HeadsNorm:
    """Root mean square normalisation of every head by itself, query and key heads having a learned scale each."""

    weight: torch.Tensor  # [query and key heads, head_dim]
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, heads, head_dim], the query heads before the key heads."""
        return rms_norm(x, self.weight.shape[1:], None, self.eps).mul_(self.weight)


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer normalisation of the last `size` items; without learned scale and shift where the model has none."""

    size: int
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Norm`."""
        return layer_norm(x, (self.size,), self.weight, self.bias, self.eps)


def take_rms_norm(weights: Weights, name: str, size: int, eps: float) -> RmsNorm:
    """The norm `name`."""
    return RmsNorm(weights.take(f"{name}.weight", (size,)), eps)


def take_heads_norm(weights: Weights, counts: Mapping[str, int], size: int, eps: float) -> HeadsNorm:
    """One norm after another, each for so many heads."""
    scales = [weights.take(f"{name}.weight", (size,)).expand(count, size) for name, count in counts.items()]
    return HeadsNorm(torch.cat(scales), eps)


def take_layer_norm(weights: Weights, name: str, size: int, eps: float, *, learned: bool = True) -> LayerNorm:
    """The norm `name`."""
    if not learned:
        return LayerNorm(size, None, None, eps)
    return LayerNorm(size, weights.take(f"{name}.weight", (size,)), weights.take(f"{name}.bias", (size,)), eps)
