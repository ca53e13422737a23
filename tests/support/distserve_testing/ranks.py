"""All ranks of an instance in one process: a thread for each rank of a stage, one stage after another."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch

from distserve_worker.engine.loading.loading_model import load_model
from distserve_worker.engine.models.interface import CausalModel
from distserve_worker.engine.parallel import WHOLE, Grid, shard_of
from distserve_worker.weights.reading import read_config

_PATIENCE: Final = 60.0  # seconds, for a rank that failed before it came


class Meeting:
    """What the ranks of a stage hand to each other."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=_PATIENCE)
        self._brought: list[torch.Tensor] = [torch.empty(0)] * size

    def exchange(self, rank: int, x: torch.Tensor) -> list[torch.Tensor]:
        """What each rank brought, in order, on the device of `x`."""
        self._brought[rank] = x.clone()
        self._barrier.wait()
        brought = [part.to(x.device) for part in self._brought]
        self._barrier.wait()
        return brought

    def leave(self) -> None:
        """A rank failed: the others need not wait for it."""
        self._barrier.abort()


@dataclass(frozen=True)
class MeetingCollective:
    """The `Collective` of one rank."""

    meeting: Meeting
    rank: int

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(torch.stack(self.meeting.exchange(self.rank, x)).sum(dim=0))

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(self.meeting.exchange(self.rank, x), dim=-1)


class DenseAttention:
    """Attention of one sequence, written out; keeps the keys and values of all calls."""

    def __init__(self) -> None:
        self._stored: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None = None
    ) -> torch.Tensor:
        if layer in self._stored:
            key, value = (torch.cat(pair) for pair in zip(self._stored[layer], (key, value), strict=True))
        self._stored[layer] = key, value
        shared = query.shape[1] // key.shape[1]
        keys, values = (tensor.float().repeat_interleave(shared, dim=1) for tensor in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query.float(), keys) / query.shape[2] ** 0.5
        seen = torch.arange(len(key))
        at = seen[-len(query) :, None]
        hidden = (seen > at) if window is None else (seen > at) | (seen <= at - window)
        out = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)
        return out.flatten(1).to(query.dtype)


class Instance:
    """A model in `folder`, cut by `grid`."""

    def __init__(self, folder: Path, dtype: str = "FP32", grid: Grid = WHOLE) -> None:
        config = read_config(folder)
        shards = [shard_of(config, grid, rank) for rank in range(grid.ranks)]
        self._stages: list[list[CausalModel]] = []
        self._meetings = [Meeting(grid.tp) for _ in range(grid.pp)]
        for stage, meeting in enumerate(self._meetings):
            mine = sorted((s for s in shards if s.stage == stage), key=lambda shard: shard.tensor_rank)
            ranks = [(shard, MeetingCollective(meeting, shard.tensor_rank)) for shard in mine]
            self._stages.append(
                [
                    load_model(folder, config, dtype, torch.device("cpu"), shard=shard, collective=collective).model
                    for shard, collective in ranks
                ]
            )

    def logits(self, tokens: Sequence[int], cuts: Sequence[int] = ()) -> torch.Tensor:
        """Logits [n, vocab] of all `tokens`, computed up to each of the `cuts` and then to the end."""
        attentions = [[DenseAttention() for _ in stage] for stage in self._stages]
        bounds = [0, *cuts, len(tokens)]
        return torch.cat([self._step(tokens, range(a, b), attentions) for a, b in pairwise(bounds)])

    def _step(self, tokens: Sequence[int], place: range, attentions: list[list[DenseAttention]]) -> torch.Tensor:
        positions = torch.tensor(place)
        new = torch.tensor(tokens[place.start : place.stop])
        hidden = self._of_stage(0, lambda rank: self._stages[0][rank].embed(new, positions))
        for stage in range(len(self._stages)):
            hidden = self._run(stage, hidden, positions, attentions[stage])
        return self._of_stage(-1, lambda rank: self._stages[-1][rank].logits(hidden))

    def _run(
        self, stage: int, hidden: torch.Tensor, positions: torch.Tensor, attentions: list[DenseAttention]
    ) -> torch.Tensor:
        return self._of_stage(stage, lambda rank: self._stages[stage][rank].run(hidden, positions, attentions[rank]))

    def _of_stage(self, stage: int, compute: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """What each rank of a stage computes, which must be the same."""
        meeting = self._meetings[stage]

        def one(rank: int) -> torch.Tensor:
            try:
                with torch.inference_mode():
                    return compute(rank)
            except BaseException:
                meeting.leave()
                raise

        ranks = range(len(self._stages[stage]))
        with ThreadPoolExecutor(len(ranks)) as pool:
            results = list(pool.map(one, ranks))
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], atol=0.0, rtol=0.0)
        return results[0]
