"""What the prefill and the decode engine share: requests, blocks, and memory for transports."""

from collections.abc import Sequence

import torch

from distserve_worker.engine.blocks import BlockManager
from distserve_worker.engine.interface import (
    BlockRef,
    Description,
    Dropped,
    KvBlocks,
    Refused,
    StaleBlocks,
    Token,
    Work,
)
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import CausalModel
from distserve_worker.engine.request import Request, Stage, admitted
from distserve_worker.engine.sampling.sampler import sample

NOT_FINITE = "the model's logits are not finite (NaN or infinity)"


class TorchEngine:
    """Base of the two engines; a subclass adds `step` and its queue."""

    def __init__(self, description: Description, vocabulary: int, model: CausalModel, memory: KvMemory) -> None:
        self._description = description
        self._vocabulary = vocabulary
        self._model = model
        self._memory = memory
        self._blocks = BlockManager(memory.blocks.shape[0])
        self._requests: dict[str, Request] = {}

    @property
    def description(self) -> Description:
        """See `Engine.description`."""
        return self._description

    def cancel(self, request_id: str) -> None:
        """See `Engine.cancel`."""
        if self._requests.pop(request_id, None) is not None:
            self._blocks.free(request_id)

    def export(self, request_id: str, blocks: tuple[BlockRef, ...]) -> KvBlocks:
        """See `Engine.export`."""
        self._require(request_id, Stage.PARKED)
        self._blocks.check(request_id, blocks)
        self._blocks.pin(request_id)
        return self._memory.view(blocks)

    def unpin(self, request_id: str) -> None:
        """See `Engine.unpin`."""
        self._blocks.unpin(request_id)

    def release(self, request_id: str) -> None:
        """See `Engine.release`."""
        self.cancel(request_id)

    def import_target(self, request_id: str) -> KvBlocks:
        """See `Engine.import_target`."""
        request = self._require(request_id, Stage.RESERVED)
        return self._memory.view(self._blocks.blocks_of(request_id)[: self._blocks_for(len(request.tokens) - 1)])

    def _require(self, request_id: str, stage: Stage) -> Request:
        request = self._requests.get(request_id)
        if request is None or request.stage is not stage:
            raise StaleBlocks(f"request {request_id} is not {stage.name.lower()} here")
        return request

    def _admitted(self, work: Work) -> Request:
        if work.request_id in self._requests or self._blocks.owns(work.request_id):
            raise Refused(f"request {work.request_id} is here already")
        return admitted(work, self._description, self._vocabulary)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._description.layout.block_tokens)

    def _sample(self, hidden: torch.Tensor, requests: Sequence[Request]) -> list[Token | Dropped]:
        """Append the next token to each request, whose last hidden state is a row of `hidden`."""
        rows = sample(self._model.logits(hidden), [request.choice for request in requests])
        return [
            Dropped(request.request_id, NOT_FINITE)
            if row is None
            else Token(request.request_id, row.token, request.append(row.token), row.logprobs)
            for request, row in zip(requests, rows, strict=True)
        ]

    @staticmethod
    def _is_over(happening: Token | Dropped) -> bool:
        return isinstance(happening, Dropped) or happening.finish is not None
