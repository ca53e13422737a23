"""Rotary position embedding."""

from dataclasses import dataclass
from typing import Self

import torch

from distserve_worker.weights.rope_scaling import Rope


@dataclass(frozen=True, slots=True)
class Turn:
    """Cosine and sine of the angles of n tokens, each [n, 1, head_dim]; the sines of the first half are negated."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Turn heads [n, heads, head_dim] of the n tokens."""
        left, right = x.chunk(2, dim=-1)
        return torch.addcmul(x * self.cos, torch.cat((right, left), dim=-1), self.sin)


@dataclass(frozen=True, slots=True)
class Rotary:
    """The angles of a model; `magnitude` multiplies what is turned."""

    frequencies: torch.Tensor  # [head_dim] FP32, the second half like the first
    magnitude: float

    @classmethod
    def of(cls, rope: Rope, head_dim: int, device: torch.device) -> Self:
        """The angles that `rope` states."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies = 1.0 / rope.theta**exponents
        if rope.divisors is not None:
            frequencies /= torch.tensor(rope.divisors)
        return cls(torch.cat((frequencies, frequencies)).to(device), rope.magnitude)

    def at(self, positions: torch.Tensor, dtype: torch.dtype) -> Turn:
        """How tokens at `positions` [n] are turned; angles are computed in FP32."""
        angles = torch.outer(positions.float(), self.frequencies).unsqueeze(1)
        cos, sin = angles.cos() * self.magnitude, angles.sin() * self.magnitude
        sin[..., : sin.shape[-1] // 2].neg_()
        return Turn(cos.to(dtype), sin.to(dtype))
