"""The engine: asks the scheduler who runs next, has the ranks compute it, and samples what comes out."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from distserve_worker.engine.devices import StepStarved, memory_named, starving
from distserve_worker.engine.execution.batch import Batch, Prompt
from distserve_worker.engine.execution.executor import Executor
from distserve_worker.engine.interface import (
    BlockRef,
    Description,
    Dropped,
    Happening,
    Load,
    Parked,
    PutBack,
    Refused,
    Region,
    Reserved,
    StaleBlocks,
    Started,
    Starved,
    Token,
    Work,
)
from distserve_worker.engine.lanes import Lane
from distserve_worker.engine.request import Request, Stage, admitted
from distserve_worker.engine.sampling.sampler import sample
from distserve_worker.engine.scheduling.interface import Chunk, Scheduler, Step

log = logging.getLogger(__name__)

# Steps of so few tokens, one after another, for which there is no memory: then the engine ends, for it serves nobody.
_MOST_STARVED: Final = 3
_FEW_TOKENS: Final = 128
_FEWEST_PARTS: Final = 2
NOT_FINITE = "the model's logits are not finite (NaN or infinity)"


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step on its way, and the requests behind the rows of its logits."""

    step: Step
    batch: Batch
    rows: tuple[Request, ...]

    @property
    def prompt_tokens(self) -> int:
        """New tokens of prompts."""
        return sum(len(prompt.tokens) for prompt in self.batch.prompts)


class TorchEngine:
    """See `interface.Engine`; which phases it serves is its scheduler's matter."""

    def __init__(
        self, description: Description, vocabulary: int, scheduler: Scheduler, executor: Executor, region: Region
    ) -> None:
        """`region`: the KV memory of the rank in this process."""
        self._description = description
        self._vocabulary = vocabulary
        self._scheduler = scheduler
        self._blocks = scheduler.blocks
        self._executor = executor
        self._region = region
        self._requests: dict[str, Request] = {}
        self._flights: deque[_Flight] = deque()
        self._lanes: dict[int, Lane] = {}
        self._starved = 0  # steps of few tokens since the last one that got its memory

    @property
    def description(self) -> Description:
        """See `Engine.description`."""
        return self._description

    @property
    def region(self) -> Region:
        """See `Engine.region`."""
        return self._region

    def load(self) -> Load:
        """See `Engine.load`."""
        scheduler = self._scheduler
        return Load(
            queued_tokens=scheduler.queued_tokens + sum(flight.prompt_tokens for flight in self._flights),
            waiting=scheduler.waiting,
            running=scheduler.running,
            free_blocks=self._blocks.free_count,
            total_blocks=self._blocks.total,
            parked=scheduler.parked,
        )

    def admit(self, work: Work) -> None:
        """See `Engine.admit`."""
        if work.request_id in self._requests or self._blocks.owns(work.request_id):
            raise Refused(f"request {work.request_id} is here already")
        request = admitted(work, self._description, self._vocabulary)
        self._scheduler.add(request)
        self._requests[work.request_id] = request

    def cancel(self, request_id: str) -> None:
        """See `Engine.cancel`; what a step on its way uses is freed when that is done."""
        if self._requests.pop(request_id, None) is not None:
            self._scheduler.remove(request_id)

    def has_work(self) -> bool:
        """See `Engine.has_work`."""
        return bool(self._flights) or self._scheduler.can_run()

    @memory_named()
    def begin(self) -> tuple[Happening, ...]:
        """See `Engine.begin`: fill the pipeline."""
        if reserved := self._scheduler.reserve():
            return tuple(Reserved(request.request_id) for request in reserved)
        happenings: list[Happening] = []
        while len(self._flights) < self._executor.depth and (step := self._scheduler.next()) is not None:
            happenings.extend(self._begin(step))
        return tuple(happenings)

    @memory_named()
    def step(self) -> tuple[Happening, ...]:
        """See `Engine.step`: take what comes out of the pipeline first."""
        begun = self.begin()
        if not self._flights or any(isinstance(happening, Reserved) for happening in begun):
            return begun
        return (*begun, *self._finish(self._flights.popleft()))

    def export(self, request_id: str, blocks: tuple[BlockRef, ...]) -> None:
        """See `Engine.export`."""
        self._require(request_id, Stage.PARKED)
        self._blocks.check(request_id, blocks)
        self._blocks.pin(request_id)

    def unpin(self, request_id: str) -> None:
        """See `Engine.unpin`."""
        self._blocks.unpin(request_id)

    def release(self, request_id: str) -> None:
        """See `Engine.release`."""
        self.cancel(request_id)

    def import_target(self, request_id: str) -> tuple[BlockRef, ...]:
        """See `Engine.import_target`."""
        request = self._require(request_id, Stage.RESERVED)
        return self._blocks.blocks_of(request_id)[: self._blocks.blocks_for(len(request.tokens) - 1)]

    def imported(self, request_id: str) -> None:
        """See `Engine.imported`; the end of the import of a cancelled request frees its blocks."""
        self._blocks.unpin(request_id)
        request = self._requests.get(request_id)
        if request is not None and request.stage is Stage.RESERVED:
            self._scheduler.imported(request_id)

    def _require(self, request_id: str, stage: Stage) -> Request:
        request = self._requests.get(request_id)
        if request is None or request.stage is not stage:
            raise StaleBlocks(f"request {request_id} is not {stage.name.lower()} here")
        return request

    def _begin(self, step: Step) -> Iterator[Happening]:
        """Send a step on its way."""
        for request in step.put_back:
            del self._requests[request.request_id]
            yield PutBack(request.request_id)
        if not step.requests:
            self._scheduler.done(step)
            return
        for chunk in step.prompts:
            if not chunk.request.started:
                chunk.request.started = True
                yield Started(chunk.request.request_id, chunk.found)
        batch, rows = self._batch(step)
        self._executor.submit(batch)
        self._flights.append(_Flight(step, batch, rows))

    def _batch(self, step: Step) -> tuple[Batch, tuple[Request, ...]]:
        prompts = tuple(self._prompt(chunk) for chunk in step.prompts)
        rows = tuple(chunk.request for chunk in step.prompts if chunk.samples)
        cleared = tuple(self._entered(step))
        if not step.running:
            return Batch(prompts, None, cleared), rows
        lane = self._lanes.setdefault(step.lane, Lane(step.lane))
        return Batch(prompts, lane.arranged(step.running, self._blocks), cleared), (*rows, *lane.members)

    def _prompt(self, chunk: Chunk) -> Prompt:
        request = chunk.request
        table = tuple(block.index for block in self._blocks.blocks_of(request.request_id))
        return Prompt(tuple(request.tokens[chunk.start : chunk.stop]), chunk.start, table, chunk.samples)

    def _entered(self, step: Step) -> Iterator[int]:
        """Blocks that are begun and not filled: what somebody else left in their ends must not be met, least a NaN."""
        size = self._blocks.block_tokens
        spans = [(chunk.request, chunk.start, chunk.stop) for chunk in step.prompts]
        spans += [(request, len(request.tokens) - 1, len(request.tokens)) for request in step.running]
        for request, start, stop in spans:
            last = (stop - 1) // size
            if start <= last * size and stop % size:
                yield self._blocks.blocks_of(request.request_id)[last].index

    def _finish(self, flight: _Flight) -> Iterator[Happening]:
        """Take what a step has computed. Blocks of a request that got no memory must not be found by others."""
        happenings = self._computed(flight)
        yield from happenings
        for starved in [one for one in happenings if isinstance(one, Starved)]:
            self.cancel(starved.request_id)
        self._scheduler.done(flight.step)
        for happening in happenings:
            if isinstance(happening, Dropped) or (isinstance(happening, Token) and happening.finish is not None):
                self.cancel(happening.request_id)
        if self._scheduler.parks:
            yield from (self._parked(request) for request in flight.rows if self._is_here(request))

    def _computed(self, flight: _Flight) -> list[Token | Dropped | Starved]:
        """What comes out of a step, or one after another out of its parts where there is no memory for the whole."""
        try:
            happenings = self._sample(self._executor.collect(), flight.rows)
        except StepStarved as error:
            parts = [] if self._flights else list(self._parts(flight))
            if len(parts) < _FEWEST_PARTS:
                return self._starve(flight, error)
        else:
            self._starved = 0
            return [*happenings]
        found = []
        for part in parts:
            self._executor.submit(part.batch)
            found.extend(self._computed(part))
        return found

    def _parts(self, flight: _Flight) -> Iterator[_Flight]:
        """Each prompt alone, and all that run; or, of these alone, both halves."""
        step, batch = flight.step, flight.batch
        for chunk, prompt in zip(step.prompts, batch.prompts, strict=True):
            alone = Step((chunk,))
            rows = (chunk.request,) if chunk.samples else ()
            yield _Flight(alone, Batch((prompt,), None, tuple(self._entered(alone))), rows)
        if batch.running is None:
            return
        members = flight.rows[len(flight.rows) - len(step.running) :]
        half = 0 if batch.prompts else len(members) // 2
        for part in (slice(half), slice(half, None)):
            if members[part]:
                some = Step(running=members[part])
                yield _Flight(some, Batch((), batch.running.part(part), tuple(self._entered(some))), members[part])

    def _starve(self, flight: _Flight, error: StepStarved) -> list[Token | Dropped | Starved]:
        """All that a step would have computed is let go of. An engine in which none gets memory ends."""
        if flight.batch.new_tokens <= _FEW_TOKENS:
            self._starved += 1
        if self._starved == _MOST_STARVED:
            raise error
        log.warning("no memory for a step of %d tokens: %s", flight.batch.new_tokens, error)
        text = f"there was no memory for its step of {flight.batch.new_tokens} tokens: {error}"
        return [Starved(request.request_id, text) for request in flight.step.requests if self._is_here(request)]

    def _parked(self, request: Request) -> Parked:
        return Parked(request.request_id, self._blocks.blocks_of(request.request_id), len(request.tokens) - 1)

    def _sample(self, logits: torch.Tensor, requests: Sequence[Request]) -> list[Token | Dropped]:
        """Append the next token to each request that is still here; their logits are rows of `logits`."""
        if not requests:
            return []
        with starving(logits.device):
            rows = sample(logits, [request.choice for request in requests])
        return [
            Dropped(request.request_id, NOT_FINITE)
            if row is None
            else Token(request.request_id, row.token, request.append(row.token), row.logprobs)
            for request, row in zip(requests, rows, strict=True)
            if self._is_here(request)
        ]

    def _is_here(self, request: Request) -> bool:
        """Not cancelled, and not another one of the same name."""
        return self._requests.get(request.request_id) is request
