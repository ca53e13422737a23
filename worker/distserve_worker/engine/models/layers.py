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
    """Rotary position embedding."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = 1.0 / config.rope_theta**exponents
        if config.rope_divisors is not None:
            frequencies /= torch.tensor(config.rope_divisors)
        self._frequencies = torch.cat((frequencies, frequencies)).to(device)

    def at(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine for `positions` [n], each [n, 1, head_dim]; angles are computed in FP32."""
        angles = torch.outer(positions.float(), self._frequencies).unsqueeze(1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn heads [n, heads, head_dim] by the angles of `Rotary.at`."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin
