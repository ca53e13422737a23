"""What an architecture offers to the engine, and what it gets from it."""

from typing import Protocol

import torch


class Attention(Protocol):
    """Attention of one step, with the KV cache behind it."""

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Query [n, heads, head_dim], K and V [n, kv_heads, head_dim] of n new tokens → [n, heads * head_dim]."""
        ...


class Weights(Protocol):
    """Where a model takes its weights from, under Hugging Face's names."""

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The weight `name`, ready to compute with. Raises `ModelInvalid` when it is missing or of another shape."""
        ...


class CausalModel(Protocol):
    """A decoder-only language model."""

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        """Token ids [n] at `positions` [n] → hidden states [n, hidden]."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [m, hidden] → logits [m, vocab] in FP32."""
        ...
