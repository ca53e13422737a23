"""The part of a layer in which tokens see each other."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from distserve_worker.engine.models.interface import Attention, Place
from distserve_worker.engine.models.linear import Linear, Outputs
from distserve_worker.engine.models.norms import HeadsNorm
from distserve_worker.engine.models.rotary import Turn
from distserve_worker.weights.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Step:
    """What layers need of a step besides hidden states."""

    attention: Attention
    turn: Turn | None  # None: positions are in the embeddings


@dataclass(frozen=True, slots=True)
class Heads:
    """A rank's heads, and what is done to them before they are compared."""

    query: int
    key: int
    size: int
    norm: HeadsNorm | None = None
    window: int | None = None  # see `Attention`
    query_factor: float = 1.0  # on top of the division by the root of the size


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Queries, keys and values out of one matrix, in this order; `index` is the layer's within its stage."""

    index: int
    qkv: Linear
    heads: Heads
    output: Linear

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """[n, hidden] → [n, hidden]."""
        heads = self.heads
        qkv = torch.unflatten(self.qkv(x), -1, (-1, heads.size))
        compared, value = torch.split(qkv, [heads.query + heads.key, heads.key], dim=1)
        if heads.norm is not None:
            compared = heads.norm(compared)
        if step.turn is not None:
            compared = step.turn(compared)
        query, key = torch.split(compared, [heads.query, heads.key], dim=1)
        if heads.query_factor != 1.0:
            query = query * heads.query_factor
        return self.output(step.attention(self.index, query, key, value, heads.window))


def qkv_pieces(config: ModelConfig, place: Place, names: Sequence[str]) -> tuple[Outputs, ...]:
    """This rank's heads in the matrices of queries, keys and values."""
    query, key = place.shard.heads, place.shard.kv_heads
    totals = (config.heads, config.kv_heads, config.kv_heads)
    return tuple(
        Outputs(name, total * config.head_dim, mine.start * config.head_dim, mine.stop * config.head_dim)
        for name, total, mine in zip(names, totals, (query, key, key), strict=True)
    )


def query_columns(config: ModelConfig, place: Place) -> range:
    """What this rank's heads are in the input of the output matrix."""
    return range(place.shard.heads.start * config.head_dim, place.shard.heads.stop * config.head_dim)
