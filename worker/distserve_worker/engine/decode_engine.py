"""Continues requests whose KV was pulled from prefill instances, in one continuous batch."""

import torch

from distserve_worker.engine.attention import DecodeAttention
from distserve_worker.engine.decode_scheduler import DecodeScheduler, Waiting
from distserve_worker.engine.interface import Description, Happening, Load, Refused, Reserved, Work
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.models.interface import CausalModel
from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.torch_engine import TorchEngine


class DecodeEngine(TorchEngine):
    """The decode twin of `interface.Engine`."""

    def __init__(
        self,
        description: Description,
        vocabulary: int,
        model: CausalModel,
        memory: KvMemory,
        scheduler: DecodeScheduler,
    ) -> None:
        super().__init__(description, vocabulary, model, memory)
        self._scheduler = scheduler
        self._members: list[Request] = []  # of the last step, in the scheduler's order
        self._batch: list[Request] = []  # the same, shortest first
        self._tables = torch.empty(0)
        self._rows = torch.empty(0)

    def load(self) -> Load:
        """See `Engine.load`."""
        return Load(
            queued_tokens=self._scheduler.queued_tokens,
            waiting=self._scheduler.waiting,
            running=len(self._scheduler.running),
            free_blocks=self._blocks.free_count,
            total_blocks=self._blocks.total,
            parked=0,
        )

    def admit(self, work: Work) -> None:
        """See `Engine.admit`."""
        if not work.output:
            raise Refused("a decode leg needs the token that prefill sampled")
        request = self._admitted(work)
        # the last token's own K and V are never computed
        blocks = self._blocks_for(request.limit - 1)
        self._scheduler.add(Waiting(work.request_id, blocks, len(request.tokens)))
        self._requests[work.request_id] = request

    def cancel(self, request_id: str) -> None:
        """See `Engine.cancel`; a `Reserved` request counts as pinned until `imported` or `unpin`."""
        self._scheduler.remove(request_id)
        super().cancel(request_id)

    def imported(self, request_id: str) -> None:
        """See `Engine.imported`; the end of the import of a cancelled request frees its blocks."""
        self._blocks.unpin(request_id)
        request = self._requests.get(request_id)
        if request is not None and request.stage is Stage.RESERVED:
            request.stage = Stage.RUNNING
            self._scheduler.imported(request_id)

    def has_work(self) -> bool:
        """See `Engine.has_work`."""
        return self._scheduler.can_run() or self._scheduler.can_reserve(self._blocks.free_count)

    @torch.inference_mode()
    def step(self) -> tuple[Happening, ...]:
        """See `Engine.step`."""
        if reserved := self._reserve():
            return reserved  # before the batch runs: a pull can begin a whole step earlier
        batch = [self._requests[request_id] for request_id in self._scheduler.batch()]
        return tuple(self._run(batch)) if batch else ()

    def _reserve(self) -> tuple[Reserved, ...]:
        taken = self._scheduler.reserve(self._blocks.free_count)
        for waiting in taken:
            self._blocks.allocate(waiting.request_id, waiting.blocks)
            self._blocks.pin(waiting.request_id)
            self._requests[waiting.request_id].stage = Stage.RESERVED
        return tuple(Reserved(waiting.request_id) for waiting in taken)

    def _run(self, members: list[Request]) -> list[Happening]:
        self._arrange(members)
        hidden = self._forward(self._batch)
        happenings: list[Happening] = []
        for happening in self._sample(hidden, self._batch):
            happenings.append(happening)
            if self._is_over(happening):
                self.cancel(happening.request_id)
        return happenings

    def _arrange(self, members: list[Request]) -> None:
        """Bring the batch into the order of lengths, which holds until the members change; so do the block tables."""
        if members == self._members:
            return
        self._members = members
        self._batch = sorted(members, key=lambda request: len(request.tokens))
        tables = [[block.index for block in self._blocks.blocks_of(request.request_id)] for request in self._batch]
        longest = max(len(table) for table in tables)
        # A short table is filled up with its own first block: what is masked away must still be finite.
        padded = [table + table[:1] * (longest - len(table)) for table in tables]
        self._tables = torch.tensor(padded, device=self._memory.device)
        self._rows = self._memory.row_indices(self._tables)

    def _forward(self, batch: list[Request]) -> torch.Tensor:
        positions = [len(request.tokens) - 1 for request in batch]
        self._clear_entered_blocks(batch, positions)
        attention = DecodeAttention(self._memory, self._tables, self._rows, positions)
        tokens = torch.tensor([request.tokens[-1] for request in batch], device=self._memory.device)
        hidden = self._model.embed(tokens, attention.positions)
        return self._model.run(hidden, attention.positions, attention)

    def _clear_entered_blocks(self, batch: list[Request], positions: list[int]) -> None:
        block_tokens = self._description.layout.block_tokens
        entered = [
            self._blocks.blocks_of(request.request_id)[position // block_tokens].index
            for request, position in zip(batch, positions, strict=True)
            if position % block_tokens == 0
        ]
        self._memory.clear(entered)
