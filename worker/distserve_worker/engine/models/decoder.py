"""A rank's part of a model, made of layers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from distserve_worker.engine.models.interface import Attention
from distserve_worker.engine.models.linear import Linear
from distserve_worker.engine.models.norms import Norm
from distserve_worker.engine.models.rotary import Rotary
from distserve_worker.engine.models.self_attention import SelfAttention, Step
from distserve_worker.engine.models.vocabulary import Head, LearnedPositions, Vocabulary


class Layer(Protocol):
    """Attention and MLP, each added to what it gets."""

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """[n, hidden] → [n, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class NormFirst:
    """A `Layer` that normalises what its parts get."""

    attention_norm: Norm
    attention: SelfAttention
    mlp_norm: Norm
    mlp: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """See `Layer`."""
        x = x + self.attention(self.attention_norm(x), step)
        return x + self.mlp(self.mlp_norm(x))


@dataclass(frozen=True, slots=True)
class NormLast:
    """A `Layer` that normalises what comes out of its parts."""

    attention: SelfAttention
    attention_norm: Norm
    mlp: Callable[[torch.Tensor], torch.Tensor]
    mlp_norm: Norm

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """See `Layer`."""
        x = self.attention_norm(x + self.attention(x, step))
        return self.mlp_norm(x + self.mlp(x))


@dataclass(frozen=True, slots=True)
class Entrance:
    """Tokens into hidden states; `widen` where embeddings are of another width."""

    vocabulary: Vocabulary
    widen: Linear | None = None
    positions: LearnedPositions | None = None

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Token ids [n] at `positions` [n] → [n, hidden]."""
        x = self.vocabulary.embed(tokens)
        if self.widen is not None:
            x = self.widen(x)
        return x if self.positions is None else x + self.positions(positions)


@dataclass(frozen=True, slots=True)
class Exit:
    """Hidden states into logits; `narrow` where embeddings are of another width."""

    norm: Norm | None
    head: Head
    narrow: Linear | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[m, hidden] → [m, vocab] in FP32."""
        if self.norm is not None:
            x = self.norm(x)
        if self.narrow is not None:
            x = self.narrow(x)
        return self.head(x)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A `CausalModel`; what other stages have is None."""

    entrance: Entrance | None
    rotary: Rotary | None  # None: positions are in the embeddings
    layers: tuple[Layer, ...]
    exit: Exit | None

    def embed(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """See `CausalModel.embed`."""
        assert self.entrance is not None, "tokens enter at the first stage"
        return self.entrance(tokens, positions)

    def run(self, hidden: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        """See `CausalModel.run`."""
        step = Step(attention, self.rotary.at(positions, hidden.dtype) if self.rotary is not None else None)
        for layer in self.layers:
            hidden = layer(hidden, step)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `CausalModel.logits`."""
        assert self.exit is not None, "logits come out of the last stage"
        return self.exit(hidden)
