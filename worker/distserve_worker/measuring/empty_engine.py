"""The engine around a model that computes nothing: what is left of a step is the host's cost.

The engine does not tell the two apart by itself. Here everything else is the same: admission, scheduling, accounting of
blocks, indices for attention, and the choice of the tokens.
"""

from dataclasses import replace
from typing import Final

import torch

from distserve_worker.engine.blueprint import BLOCK_TOKENS, EngineConfig, blueprint_of
from distserve_worker.engine.building import scheduler_of
from distserve_worker.engine.devices import device_of
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.execution.executor import OneRank
from distserve_worker.engine.execution.rank import Rank
from distserve_worker.engine.interface import Engine, KvShard
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import Attention
from distserve_worker.engine.parallel import WHOLE, Shard
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.torch_engine import TorchEngine
from distserve_worker.engine.work_memory import step_bounds
from distserve_worker.measuring.batches import MOST_REQUESTS

_LOGITS_SCALE: Final = 3.0  # about as far apart as those of a model


class NoModel:
    """A `CausalModel` whose logits are made in advance."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = _LOGITS_SCALE * torch.randn(MOST_REQUESTS, vocabulary, generator=generator)
        self._logits = logits.to(device)

    def embed(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """See `CausalModel.embed`; the hidden states have one element."""
        return torch.zeros((len(tokens), 1), device=tokens.device)

    def run(self, hidden: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:  # noqa: ARG002
        """See `CausalModel.run`."""
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `CausalModel.logits`; at most `MOST_REQUESTS` rows."""
        return self._logits[: len(hidden)]


def empty_twin(engine: Engine, config: EngineConfig) -> Engine:
    """An engine that admits, schedules and cuts its steps as `engine` does, which was made of `config`.

    Its KV cache has as many blocks, of one element a head.
    """
    blueprint = blueprint_of(config)
    device = device_of(config.device, 0)
    layout = replace(engine.description.layout, layers=1, head_dim=1)
    kv_shard = KvShard(0, 1, 0, layout.kv_heads)
    memory = KvMemory(layout, blueprint.blocks, DTYPES[layout.dtype], device)
    heads, vocabulary = range(layout.kv_heads), blueprint.model.vocab
    shard = Shard(WHOLE, 0, 0, range(1), heads, heads)
    rank = Rank(shard, NoModel(vocabulary, device), memory, step_bounds(blueprint, 0))
    scheduler = scheduler_of(config, BlockManager(blueprint.blocks, BLOCK_TOKENS))
    description = replace(engine.description, layout=layout, shards=(kv_shard,))
    return TorchEngine(description, vocabulary, scheduler, OneRank(rank), memory.region(kv_shard))
