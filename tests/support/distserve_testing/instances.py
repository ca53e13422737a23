"""Whole instances of several ranks in one process, and what gateways and servers do between two of them."""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from distserve_testing.ranks import Meeting, MeetingCollective
from distserve_worker.engine.blueprint import EngineConfig, blueprint_of
from distserve_worker.engine.building import build_rank, engine_of
from distserve_worker.engine.execution.batch import Batch
from distserve_worker.engine.execution.rank import Rank
from distserve_worker.engine.interface import KvShard, Parked, PutBack, Region, Reserved, Started, Token, Work
from distserve_worker.engine.parallel import Grid
from distserve_worker.transfer.resharding import pieces

_STEPS: Final = 5_000  # far more than any test needs: a run that does not end fails


class Threads:
    """An `Executor` whose ranks are threads: a stage after the other, the ranks of a stage side by side."""

    def __init__(self, ranks: Sequence[Rank], meetings: Sequence[Meeting]) -> None:
        grid = ranks[0].shard.grid
        self.depth = grid.pp
        self._stages = [
            sorted((r for r in ranks if r.shard.stage == stage), key=lambda rank: rank.shard.tensor_rank)
            for stage in range(grid.pp)
        ]
        self._meetings = meetings
        self._pool = ThreadPoolExecutor(grid.tp)
        self._batches: deque[Batch] = deque()

    def submit(self, batch: Batch) -> None:
        assert len(self._batches) < self.depth
        assert batch.new_tokens
        self._batches.append(batch)

    def collect(self) -> torch.Tensor:
        batch, hidden = self._batches.popleft(), None
        for stage, meeting in zip(self._stages, self._meetings, strict=True):
            hidden = self._run(stage, meeting, batch, hidden)
        assert hidden is not None
        return hidden

    def _run(self, stage: list[Rank], meeting: Meeting, batch: Batch, hidden: torch.Tensor | None) -> torch.Tensor:
        def one(rank: Rank) -> torch.Tensor:
            try:
                return rank.run(batch, None if hidden is None else hidden.to(rank.memory.device))
            except BaseException:
                meeting.leave()
                raise

        first, *_ = self._pool.map(one, stage)
        return first


class Instance:
    """An engine on the model in `folder`, cut by `grid`; other arguments are fields of `EngineConfig`."""

    def __init__(self, role: Any, folder: Path, kv_cache_bytes: int, grid: Grid, **fields: Any) -> None:
        blueprint = blueprint_of(EngineConfig(role, folder, kv_cache_bytes, grid=grid, **fields))
        meetings = [Meeting(grid.tp) for _ in range(grid.pp)]
        shards = [blueprint.shard(rank) for rank in range(grid.ranks)]
        built = [
            build_rank(blueprint, rank, MeetingCollective(meetings[shard.stage], shard.tensor_rank))
            for rank, shard in enumerate(shards)
        ]
        self.regions: list[Region] = [one.region for one in built]
        self.engine = engine_of(blueprint, built[0], Threads([one.rank for one in built], meetings))

    @property
    def shards(self) -> tuple[KvShard, ...]:
        """What its ranks hold."""
        return self.engine.description.shards

    def alone(self, works: Iterable[Work]) -> dict[str, list[int]]:
        """Output tokens of each request, from a colocated engine."""
        works = list(works)
        outputs = {work.request_id: list(work.output) for work in works}
        for work in works:
            self.engine.admit(work)
        for _ in range(_STEPS):
            if not self.engine.has_work():
                return outputs
            for happening in self.engine.step():
                match happening:
                    case Token(request_id, token):
                        outputs[request_id].append(token)
                    case _:
                        assert isinstance(happening, Started), happening
        raise AssertionError(f"the engine still has work: {self.engine.load()}")


def pull(source: Instance, parked: Parked, reader: Instance) -> None:
    """Every rank of `reader` takes its layers and heads from the ranks that hold them."""
    source.engine.export(parked.request_id, parked.blocks)
    room = reader.engine.import_target(parked.request_id)
    for piece in pieces(source.shards, reader.shards):
        stored = _heads(source.regions[piece.source], piece.part)
        wanted = _heads(reader.regions[piece.reader], piece.part)
        for block, place in zip(parked.blocks, room, strict=True):
            wanted[place.index] = stored[block.index]
    source.engine.unpin(parked.request_id)
    source.engine.release(parked.request_id)
    reader.engine.imported(parked.request_id)


def _heads(region: Region, part: KvShard) -> torch.Tensor:
    """[blocks, layers, 2, heads, bytes] of a part, sharing the memory of the region."""
    whole = region.memory.view(-1, region.shard.layers, 2, region.shard.heads, region.layout.head_bytes)
    layer, head = part.first_layer - region.shard.first_layer, part.first_head - region.shard.first_head
    return whole[:, layer : layer + part.layers, :, head : head + part.heads]


class Service:
    """A prefill and a decode instance, with what a gateway does between them; counts what happened besides tokens."""

    def __init__(self, prefill: Instance, decode: Instance) -> None:
        self._prefill, self._decode = prefill, decode
        self._works: dict[str, Work] = {}
        self._parked: dict[str, Parked] = {}
        self.outputs: dict[str, list[int]] = {}
        self.put_back = 0
        self.cached_tokens = 0

    def serve(self, works: Iterable[Work]) -> dict[str, list[int]]:
        """Output tokens of each request."""
        for work in works:
            self._begin(work)
        for _ in range(_STEPS):
            if not (self._prefill.engine.has_work() or self._decode.engine.has_work()):
                return self.outputs
            for happening in self._prefill.engine.step():
                self._take(happening)
            for happening in self._decode.engine.step():
                self._take(happening)
        raise AssertionError(f"still at work: {self._prefill.engine.load()} {self._decode.engine.load()}")

    def _begin(self, work: Work) -> None:
        self._works[work.request_id] = work
        self.outputs[work.request_id] = list(work.output)
        self._prefill.engine.admit(work)

    def _take(self, happening: Any) -> None:
        match happening:
            case Started(_, cached_tokens):
                self.cached_tokens += cached_tokens
            case Token(request_id, token):
                self.outputs[request_id].append(token)
            case Parked(request_id):
                self._parked[request_id] = happening
                self._decode.engine.admit(self._so_far(request_id))
            case Reserved(request_id):
                pull(self._prefill, self._parked.pop(request_id), self._decode)
            case PutBack(request_id):
                self.put_back += 1
                self._prefill.engine.admit(self._so_far(request_id))
            case _:
                raise AssertionError(happening)

    def _so_far(self, request_id: str) -> Work:
        return replace(self._works[request_id], output=tuple(self.outputs[request_id]))
