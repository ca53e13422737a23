"""Layers that architectures share."""

from dataclasses import dataclass

import torch
from torch.nn.functional import linear, rms_norm, silu

from distserve_worker.weights.config import ModelConfig


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root mean square normalisation with a learned scale."""

    weight: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension of `x`."""
        return rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """SwiGLU with gate and up projection in one weight [2 * ffn, hidden]."""

    gate_up: torch.Tensor
    down: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, hidden] → [n, hidden]."""
        gate, up = linear(x, self.gate_up).chunk(2, dim=-1)
        return linear(silu(gate).mul_(up), self.down)


class Rotary:
    """Rotary position embedding; cosine and sine of every position are computed once."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        frequencies = 1.0 / config.rope_theta ** (
            torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        )
        if config.rope_divisors is not None:
            frequencies /= torch.tensor(config.rope_divisors)
        angles = torch.outer(torch.arange(config.max_positions, dtype=torch.float32), frequencies)
        both = torch.cat((angles, angles), dim=-1)
        self._cos = both.cos().to(device, dtype)
        self._sin = both.sin().to(device, dtype)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine for `positions` [n], each [n, 1, head_dim]."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn heads [n, heads, head_dim] by the angles of `Rotary.at`."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin
