"""Runs prompts, samples their first token and parks their KV until a decode instance has pulled it."""

from collections.abc import Iterator

import torch

from distserve_worker.engine.attention import PrefillAttention
from distserve_worker.engine.interface import Description, Happening, Load, Parked, Work
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import CausalModel
from distserve_worker.engine.prefill_scheduler import PrefillScheduler, Waiting
from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.torch_engine import TorchEngine


class PrefillEngine(TorchEngine):
    """The prefill twin of `interface.Engine`."""

    def __init__(
        self,
        description: Description,
        vocabulary: int,
        model: CausalModel,
        memory: KvMemory,
        scheduler: PrefillScheduler,
    ) -> None:
        super().__init__(description, vocabulary, model, memory)
        self._scheduler = scheduler

    def load(self) -> Load:
        """See `Engine.load`."""
        return Load(
            queued_tokens=self._scheduler.queued_tokens,
            waiting=len(self._scheduler),
            running=0,  # a batch begins and ends inside one step
            free_blocks=self._blocks.free_count,
            total_blocks=self._blocks.total,
            parked=len(self._requests) - len(self._scheduler),
        )

    def admit(self, work: Work) -> None:
        """See `Engine.admit`."""
        request = self._admitted(work)
        tokens = len(request.tokens)
        self._scheduler.add(Waiting(work.request_id, tokens, self._blocks_for(tokens)))
        self._requests[work.request_id] = request

    def cancel(self, request_id: str) -> None:
        """See `Engine.cancel`."""
        self._scheduler.remove(request_id)
        super().cancel(request_id)

    def has_work(self) -> bool:
        """See `Engine.has_work`."""
        return self._scheduler.can_run(self._blocks.free_count)

    def imported(self, request_id: str) -> None:
        """Nothing is ever reserved here, so the id is unknown and ignored."""

    @torch.inference_mode()
    def step(self) -> tuple[Happening, ...]:
        """See `Engine.step`."""
        batch = [self._requests[request_id] for request_id in self._scheduler.next_batch(self._blocks.free_count)]
        return tuple(self._run(batch)) if batch else ()

    def _run(self, batch: list[Request]) -> Iterator[Happening]:
        lengths = [len(request.tokens) for request in batch]
        hidden = self._forward(batch, lengths)
        last = torch.tensor(lengths, device=self._memory.device).cumsum(0) - 1
        for request, happening in zip(batch, self._sample(hidden[last], batch), strict=True):
            yield happening
            if self._is_over(happening):
                self.cancel(request.request_id)
            else:
                request.stage = Stage.PARKED
                yield Parked(request.request_id, self._blocks.blocks_of(request.request_id), len(request.tokens) - 1)

    def _forward(self, batch: list[Request], lengths: list[int]) -> torch.Tensor:
        tables = [
            [block.index for block in self._blocks.allocate(request.request_id, self._blocks_for(length))]
            for request, length in zip(batch, lengths, strict=True)
        ]
        self._memory.clear([table[-1] for table in tables])
        attention = PrefillAttention(self._memory, lengths, tables)
        tokens = torch.tensor([token for request in batch for token in request.tokens], device=self._memory.device)
        hidden = self._model.embed(tokens, attention.positions)
        return self._model.run(hidden, attention.positions, attention)
