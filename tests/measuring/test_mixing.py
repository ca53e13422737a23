"""Decode steps with a prompt on them, on a real engine: all run as one step, and leave nothing behind."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Engine, Happening, Started, Token
from distserve_worker.measuring.batches import MOST_REQUESTS, Bounds
from distserve_worker.measuring.medians import mixed_step_of
from distserve_worker.measuring.mixes import STEP_TOKENS, Mix, mixes
from distserve_worker.measuring.mixing import MixedBench, MixedSample
from distserve_worker.measuring.stepping import StepFailed

KV_BYTES = 32_000_000
VOCABULARY = 211


class Recording:
    """An engine, and what each of its steps told."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps: list[tuple[Happening, ...]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)

    def step(self) -> tuple[Happening, ...]:
        happenings = self.engine.step()
        self.steps.append(happenings)
        return happenings


@pytest.fixture
def recording(tiny: Path, dtype: str) -> Recording:
    return Recording(
        build_engine(
            EngineConfig(
                "colocated",
                tiny,
                KV_BYTES,
                dtype,
                max_batch_tokens=STEP_TOKENS,
                chunk_tokens=STEP_TOKENS,
                max_running=MOST_REQUESTS,
            )
        )
    )


def tokens_of(happenings: tuple[Happening, ...]) -> set[str]:
    return {one.request_id for one in happenings if isinstance(one, Token)}


def test_a_visit_times_a_decode_step_and_then_the_same_with_a_prompt(recording: Recording) -> None:
    description = recording.engine.description
    bounds = Bounds(description.max_model_length, recording.engine.load().total_blocks, description.layout.block_tokens)
    kinds = mixes(bounds)
    assert {(mix.requests, mix.before, mix.chunk) for mix in kinds} >= {(4, 0, 32), (16, 0, 128), (16, 128, 32)}
    bench = MixedBench(cast("Engine", recording), VOCABULARY, temperature=1.0)
    for mix in [*kinds, *kinds]:  # again: what is in the cache already must not be the chunk itself
        recording.steps.clear()
        sample = bench.visit(mix)
        assert sample.seconds > 0
        assert sample.alone > 0
        assert 0 <= sample.waited <= 1
        beside = {str(place) for place in range(mix.requests)}
        alone, mixed = recording.steps[-2:]
        assert tokens_of(alone) == beside
        assert tokens_of(mixed) == {*beside, "prompt"}
        assert [one.cached_tokens for one in mixed if isinstance(one, Started)] == [mix.before]
        load = recording.engine.load()
        assert load.free_blocks == load.total_blocks
        assert (load.waiting, load.running, load.queued_tokens) == (0, 0, 0)


def test_a_prompt_that_was_not_computed_before_is_no_measurement(recording: Recording) -> None:
    bench = MixedBench(recording.engine, VOCABULARY, temperature=1.0)
    with pytest.raises(StepFailed, match="8 tokens of a prompt should have been computed before, the engine found 0"):
        bench.visit(Mix(requests=2, context=17, before=8, chunk=32))  # half a block is never found again


def test_what_does_not_fit_is_left_out() -> None:
    roomy = Bounds(longest=8192, blocks=1000, block_tokens=16)
    every = mixes(roomy)
    assert [mix.work for mix in every] == sorted((mix.work for mix in every), key=lambda work: (work[-1], work[0]))
    assert len(every) == 12
    assert all(mix.before + mix.chunk <= 200 for mix in mixes(replace(roomy, longest=202)))
    assert {mix.requests for mix in mixes(replace(roomy, blocks=34))} == {4}
    assert mixes(replace(roomy, longest=16)) == []


def test_the_calmer_half_counts() -> None:
    samples = [MixedSample(0.3, 0.1, 0.0), MixedSample(0.4, 0.2, 0.1), MixedSample(9.0, 5.0, 0.9)]
    step = mixed_step_of(Mix(4, 17, 128, 32), samples)
    assert (step.requests, step.context, step.before, step.chunk, step.repetitions) == (4, 68, 128, 32, 3)
    assert (step.seconds, step.alone) == pytest.approx((0.35, 0.15))
    assert step.spread == pytest.approx(0.05 / 0.35)
