"""The engine around a model that computes nothing: what is left of a step is the host's cost.

The engine does not tell the two apart by itself. Here everything else is the same: admission, scheduling, accounting of
blocks, indices for attention, and the choice of the tokens.
"""

from dataclasses import replace
from typing import Final

import torch

from distserve_worker.engine.blueprint import BLOCK_TOKENS
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.execution.executor import OneRank
from distserve_worker.engine.execution.rank import Rank
from distserve_worker.engine.interface import Engine, KvShard
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import Attention
from distserve_worker.engine.parallel import WHOLE, Shard
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.decode import DecodeScheduler
from distserve_worker.engine.scheduling.interface import Scheduler
from distserve_worker.engine.scheduling.prefill import PrefillScheduler
from distserve_worker.engine.scheduling.rules import BatchRules, PromptRules
from distserve_worker.engine.torch_engine import TorchEngine
from distserve_worker.measuring.batches import MOST_REQUESTS, MOST_TOKENS
from distserve_worker.measuring.messages import Phase

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


def empty_twin(engine: Engine, phase: Phase, vocabulary: int, device: torch.device) -> Engine:
    """An engine that admits and schedules as `engine` does. Its KV cache has as many blocks, of one element a head."""
    layout = replace(engine.description.layout, layers=1, head_dim=1)
    kv_shard = KvShard(0, 1, 0, layout.kv_heads)
    description = replace(engine.description, layout=layout, shards=(kv_shard,))
    blocks = description.max_request_tokens // BLOCK_TOKENS
    memory = KvMemory(layout, blocks, DTYPES[layout.dtype], device)
    heads = range(layout.kv_heads)
    rank = Rank(Shard(WHOLE, 0, 0, range(1), heads, heads), NoModel(vocabulary, device), memory)
    scheduler = _scheduler(phase, BlockManager(blocks, BLOCK_TOKENS))
    return TorchEngine(description, vocabulary, scheduler, OneRank(rank), memory.region(kv_shard))


def _scheduler(phase: Phase, blocks: BlockManager) -> Scheduler:
    if phase == "prefill":
        return PrefillScheduler(blocks, PromptRules(MOST_TOKENS), MOST_REQUESTS)
    return DecodeScheduler(blocks, BatchRules(MOST_REQUESTS), MOST_REQUESTS)
