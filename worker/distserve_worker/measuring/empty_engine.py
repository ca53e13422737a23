"""The engine around a model that computes nothing: what is left of a step is the host's cost.

The engine does not tell the two apart by itself. Here everything else is the same: admission, scheduling, accounting of
blocks, indices for attention, and the choice of the tokens.
"""

from dataclasses import replace
from typing import Final

import torch

from distserve_worker.engine.decode_engine import DecodeEngine
from distserve_worker.engine.decode_scheduler import DecodeScheduler
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.interface import Engine
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import Attention
from distserve_worker.engine.prefill_engine import PrefillEngine
from distserve_worker.engine.prefill_scheduler import PrefillScheduler
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
    description = replace(engine.description, layout=layout)
    blocks = description.max_request_tokens // layout.block_tokens
    memory = KvMemory(layout, blocks, DTYPES[layout.dtype], device)
    model = NoModel(vocabulary, device)
    if phase == "prefill":
        return PrefillEngine(description, vocabulary, model, memory, PrefillScheduler(MOST_TOKENS, MOST_REQUESTS))
    return DecodeEngine(description, vocabulary, model, memory, DecodeScheduler(MOST_REQUESTS, MOST_REQUESTS))
