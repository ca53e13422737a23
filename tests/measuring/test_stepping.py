"""Steps on a real engine: every batch that is worth measuring runs as one step, and leaves nothing behind."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from distserve_worker.engine import work_memory
from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.execution import batch as execution
from distserve_worker.engine.execution import rank
from distserve_worker.engine.execution.portions import portions
from distserve_worker.engine.interface import Engine, Token, Work
from distserve_worker.measuring.batches import MOST_TOKENS, Batch, Bounds, decode_batches, prefill_batches
from distserve_worker.measuring.empty_engine import NoModel, empty_twin
from distserve_worker.measuring.stepping import Bench, StepFailed


def batches_of(engine: Engine, phase: Literal["prefill", "decode"]) -> list[Batch]:
    description = engine.description
    bounds = Bounds(description.max_model_length, engine.load().total_blocks, description.layout.block_tokens)
    return prefill_batches(bounds) if phase == "prefill" else decode_batches(bounds)


def test_every_batch_runs_and_leaves_the_engines_empty(bench: Bench, phase: Literal["prefill", "decode"]) -> None:
    batches = batches_of(bench.engine, phase)
    assert len(batches) >= 7
    for batch in batches:
        sample = bench.visit(batch)
        assert sample.seconds > 0
        assert sample.host_seconds > 0
        assert 0 <= sample.waited <= 1
        for engine in (bench.engine, bench.empty):
            load = engine.load()
            assert load.free_blocks == load.total_blocks
            assert (load.waiting, load.running, load.parked, load.queued_tokens) == (0, 0, 0, 0)
            assert not engine.has_work()


def test_the_empty_engine_admits_what_the_other_does(bench: Bench) -> None:
    assert bench.empty.load() == bench.engine.load()
    own, twin = bench.engine.description, bench.empty.description
    assert twin == replace(own, layout=twin.layout, shards=twin.shards)
    assert twin.layout == replace(own.layout, layers=1, head_dim=1)


def test_both_engines_cut_their_steps_alike(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CPU computes in portions costs the host each of them; and a step has as many prompts at most."""
    monkeypatch.setattr(work_memory, "_PORTION_BYTES", 1)
    monkeypatch.setattr(work_memory, "_LEAST_PORTION", 100)
    cut: list[int] = []

    def counted(batch: execution.Batch, tokens: int | None) -> Iterator[execution.Batch]:
        for portion in portions(batch, tokens):
            cut.append(portion.new_tokens)
            yield portion

    monkeypatch.setattr(rank, "portions", counted)
    config = EngineConfig("prefill", tiny, 32_000_000, max_batch_tokens=MOST_TOKENS, max_running=2)
    engine = build_engine(config)
    for one in (engine, empty_twin(engine, config)):
        for number in range(3):
            one.admit(Work(str(number), (number,) * 250))
        assert sum(isinstance(happening, Token) for happening in one.step()) == 2
    assert cut == [100, 100, 50, 100, 100, 50] * 2


def test_a_step_that_brings_no_tokens_is_no_measurement(
    bench: Bench, phase: Literal["prefill", "decode"], monkeypatch: pytest.MonkeyPatch
) -> None:
    def logits(_: NoModel, hidden: torch.Tensor) -> torch.Tensor:
        return torch.full((len(hidden), bench.vocabulary), torch.nan)

    monkeypatch.setattr(NoModel, "logits", logits)
    with pytest.raises(StepFailed, match="should have brought each a token, the engine told Dropped"):
        bench.visit(batches_of(bench.engine, phase)[0])
    assert bench.empty.load().free_blocks == bench.empty.load().total_blocks
