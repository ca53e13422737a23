"""One rank of an instance: its part of the weights, its KV memory, and what it computes in a step."""

import torch

from distserve_worker.engine.execution.attention import StepAttention
from distserve_worker.engine.execution.batch import Batch
from distserve_worker.engine.execution.portions import StepBounds, portions
from distserve_worker.engine.execution.tables import LaneTables
from distserve_worker.engine.execution.uploading import uploaded
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import CausalModel
from distserve_worker.engine.parallel import Shard


class Rank:
    """Computes batches in the order in which the driver sends them."""

    def __init__(self, shard: Shard, model: CausalModel, memory: KvMemory, bounds: StepBounds | None = None) -> None:
        """Ranks of one stage have the same `bounds`; None: a batch is computed as a whole."""
        self.shard = shard
        self.memory = memory
        self.dtype = memory.blocks.dtype  # of hidden states as of the KV
        self._model = model
        self._bounds = bounds or StepBounds()
        self._lanes: dict[int, LaneTables] = {}

    @torch.inference_mode()
    def run(self, batch: Batch, incoming: torch.Tensor | None = None) -> torch.Tensor:
        """This stage's share of a batch.

        `incoming`: hidden states [new tokens, hidden] from the stage before; None on the first. Returns hidden states
        for the next stage, on the last one the logits [rows, vocab] in FP32, rows as in `Batch`.
        """
        self.memory.clear(batch.cleared)
        parts, at = [], 0
        for portion in portions(batch, self._bounds.tokens):
            stop = at + portion.new_tokens
            part = self._run(portion, None if incoming is None else incoming[at:stop])
            if part is not None:
                parts.append(part)
            at = stop
        if not parts:
            return torch.empty((0, 0))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _run(self, batch: Batch, incoming: torch.Tensor | None) -> torch.Tensor | None:
        """As `run`; None instead of no rows."""
        attention = StepAttention(self.memory, batch, self._tables_of(batch), self._bounds.gathered_blocks)
        if incoming is None:
            incoming = self._model.embed(uploaded(_tokens(batch), self.memory.device), attention.positions)
        hidden = self._model.run(incoming, attention.positions, attention)
        if not self.shard.is_last:
            return hidden
        rows = batch.rows
        if not rows:  # pieces of prompts only: no rank of the stage has anything to say
            return None
        return self._model.logits(hidden[uploaded(rows, hidden.device)])

    def _tables_of(self, batch: Batch) -> torch.Tensor | None:
        running = batch.running
        if running is None:
            return None
        lane = self._lanes.get(running.lane)
        if lane is None:
            lane = self._lanes[running.lane] = LaneTables(self.memory.device)
        return lane.take(running)


def _tokens(batch: Batch) -> list[int]:
    tokens = [token for prompt in batch.prompts for token in prompt.tokens]
    return [*tokens, *batch.running.tokens] if batch.running is not None else tokens
