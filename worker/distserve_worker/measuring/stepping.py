"""Runs one batch on an engine and times its step; the engine is empty before and after."""

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.interface import Engine, Happening, KvLayout, Reserved, Sampling, Started, Token, Work
from distserve_worker.measuring.batches import ROOM, Batch
from distserve_worker.measuring.surveying import Sample


class StepFailed(Exception):  # noqa: N818 - named after what happened
    """The engine did not run the batch as one step; the text says what it told instead."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a step took."""

    seconds: float
    waited: float  # share of them in which the thread did not run


@dataclass(frozen=True, slots=True)
class Bench:
    """An engine, and its twin without a model."""

    engine: Engine
    empty: Engine
    vocabulary: int
    temperature: float
    _visits: Iterator[int] = field(default_factory=itertools.count)

    def visit(self, batch: Batch) -> Sample:
        """One step of the batch on each. Raises `StepFailed`."""
        salt = str(next(self._visits))  # what an earlier visit has computed would be found, and not computed again
        works = [self._work(str(place), length, batch, salt) for place, length in enumerate(batch.lengths)]
        run = _prefill if batch.phase == "prefill" else _decode
        full, empty = run(self.engine, works), run(self.empty, works)
        return Sample(full.seconds, empty.seconds, full.waited)

    def _work(self, request_id: str, length: int, batch: Batch, salt: str) -> Work:
        """A request with tokens at random. Of a decode request the last one is still to come: see `_decode`."""
        output = 0 if batch.phase == "prefill" else 1
        tokens = tuple(random.Random(length).choices(range(self.vocabulary), k=length - output))  # noqa: S311 - no secret
        prompt = length - 2 * output
        sampling = Sampling(self.temperature, seed=int(request_id))
        limit = length + ROOM - prompt
        return Work(request_id, tokens[:prompt], tokens[prompt:], sampling, max_tokens=limit, prefix_salt=salt)


def _prefill(engine: Engine, works: Sequence[Work]) -> Timing:
    with admitted(engine, works):
        return timed_step(engine, works)[0]


def _decode(engine: Engine, works: Sequence[Work]) -> Timing:
    """A first step brings the batch in order, which later ones profit from; the second one is timed."""
    with admitted(engine, works):
        reserved = engine.step()
        if sum(isinstance(one, Reserved) for one in reserved) != len(works):
            raise StepFailed(f"{len(works)} requests should have got blocks, the engine told {reserved[:3]}")
        region = engine.region
        contents = _contents(region.layout).to(region.memory.device)
        for work in works:
            for block in engine.import_target(work.request_id):
                region.memory[block.index] = contents
            engine.imported(work.request_id)
        timed_step(engine, works)
        return timed_step(engine, works)[0]


@contextmanager
def admitted(engine: Engine, works: Sequence[Work]) -> Iterator[None]:
    """The requests are in the engine; afterwards they are not."""
    for work in works:
        engine.admit(work)
    try:
        yield
    finally:
        for work in works:
            engine.cancel(work.request_id)
            engine.unpin(work.request_id)


def timed_step(engine: Engine, works: Sequence[Work]) -> tuple[Timing, Sequence[Happening]]:
    """One step, and what it told. Raises `StepFailed` unless each request got a token."""
    start, ran = time.perf_counter(), time.thread_time()
    happenings = engine.step()
    seconds, ran = time.perf_counter() - start, time.thread_time() - ran
    _check(happenings, works)
    return Timing(seconds, max(0.0, 1 - ran / seconds)), happenings


def _check(happenings: Sequence[Happening], works: Sequence[Work]) -> None:
    if {one.request_id for one in happenings if isinstance(one, Token)} != {work.request_id for work in works}:
        other = next((one for one in happenings if not isinstance(one, Started | Token)), "fewer tokens")
        raise StepFailed(f"a step of {len(works)} requests should have brought each a token, the engine told {other}")


def _contents(layout: KvLayout) -> torch.Tensor:
    """Bytes of a block as a pull would bring them. Memory nobody wrote to is read faster than any other."""
    shape = (layout.layers, 2, layout.kv_heads, layout.block_tokens, layout.head_dim)
    block = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DTYPES[layout.dtype])
    return block.flatten().view(torch.uint8)
