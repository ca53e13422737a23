"""What an architecture offers to the engine, and what it gets from it: all of it for one rank of an instance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from distserve_worker.engine.dtypes import Precision
from distserve_worker.engine.parallel import Shard
from distserve_worker.weights.config import ModelConfig


class Attention(Protocol):
    """Attention of one step, with the KV cache behind it."""

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None = None
    ) -> torch.Tensor:
        """Query [n, heads, head_dim], K and V [n, kv_heads, head_dim] of n new tokens → [n, heads * head_dim].

        Heads are those of this rank, `layer` counts from 0 within this stage, scores are divided by the root of
        head_dim. `window`: a token sees so many tokens, itself included; None: all before it.
        """
        ...


class Collective(Protocol):
    """What the ranks of one stage compute together; all of them call the same methods in the same order."""

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """Sum of the ranks' `x`, in place."""
        ...

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """The ranks' `x`, equal in shape, one after another along the last dimension, in the order of ranks."""
        ...


class Alone:
    """The `Collective` of a stage of one rank."""

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """See `Collective.sum`."""
        return x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """See `Collective.gather`."""
        return x


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is built: its part, whom it computes with, and on what.

    `device` is where its tensors are: `target`, or "meta" when they are only counted.
    """

    shard: Shard
    collective: Collective
    device: torch.device
    target: torch.device
    precision: Precision

    @property
    def splits(self) -> bool:
        """Whether other ranks hold the rest of each layer."""
        return self.shard.grid.tp > 1


@dataclass(frozen=True, slots=True)
class Part:
    """Items [start, stop) of dimension `dim` (0 or 1)."""

    dim: int
    start: int
    stop: int


class Weights(Protocol):
    """Where a model takes its weights from, under Hugging Face's names."""

    def take(
        self, name: str, shape: tuple[int, ...], part: Part | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Read the weight `name` of `shape`, or only a `part` of it, into `out` or a new tensor in the compute dtype.

        Raises `ModelInvalid` when it is missing or of another shape.
        """
        ...


class CausalModel(Protocol):
    """One rank's part of a decoder-only language model."""

    def embed(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Token ids [n] at `positions` [n] → hidden states [n, hidden]. On the first stage."""
        ...

    def run(self, hidden: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        """Hidden states [n, hidden] through this stage's layers → [n, hidden]."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [m, hidden] → logits [m, vocab] in FP32, on every rank of the last stage."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """How one architecture is built, and what its files have besides weights.

    `base`: beginning of all names but the head's, which files of the model without head leave out. `buffers`: ends of
    names of stored tensors that are not weights.
    """

    build: Callable[[ModelConfig, Weights, Place], CausalModel]
    base: str
    buffers: tuple[str, ...] = ()
