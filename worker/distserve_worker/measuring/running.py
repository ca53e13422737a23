"""Measures prefill, decode and then steps that mix them, one after the other: only one engine is in memory."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.engine.blueprint import EngineConfig, EngineRole, ModelDoesNotFit
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Description, Engine
from distserve_worker.exiting import WorkerFailure
from distserve_worker.measuring.arguments import DEVICES, MeasuringConfig
from distserve_worker.measuring.batches import (
    MOST_REQUESTS,
    MOST_TOKENS,
    Batch,
    Bounds,
    decode_batches,
    prefill_batches,
)
from distserve_worker.measuring.empty_engine import empty_twin
from distserve_worker.measuring.inspecting import processor
from distserve_worker.measuring.medians import mixed_step_of, step_of
from distserve_worker.measuring.messages import Message, MixedStep, Phase, Progress, Step, Subject
from distserve_worker.measuring.mixes import STEP_TOKENS, mixes
from distserve_worker.measuring.mixing import MixedBench
from distserve_worker.measuring.stepping import Bench
from distserve_worker.measuring.surveying import FEWEST, Sample, Survey
from distserve_worker.weights.config import ModelConfig

# Shares of the seconds. What a phase leaves is the next one's.
_SHARES: Final[dict[EngineRole, float]] = {"prefill": 0.35, "decode": 0.35, "colocated": 0.3}
_FEWEST_MIXES: Final = 2
_TELL_SECONDS: Final = 0.2  # between two words of progress


@dataclass(slots=True)
class Measuring:
    """One run of the process; `tell` gets every message."""

    config: MeasuringConfig
    path: Path
    model: ModelConfig
    kv_bytes: int
    tell: Callable[[Message], None]
    spent: float = 0.0  # seconds of earlier phases
    told: float = 0.0  # when progress was told last

    def run(self) -> None:
        """Tell the subject, and then all steps. Raises `WorkerFailure`, `ModelInvalid` and `StepFailed`."""
        left = 1.0
        for role, share in _SHARES.items():
            self.tell(Progress(min(1.0, self.spent / self.config.seconds), f"loading for {role}"))
            config = self._config(role)
            engine = _engine(config)
            if left == 1:
                self.tell(self._subject(engine.description))
            start = time.monotonic()
            seconds = max(0.0, self.config.seconds - self.spent) * share / left
            for step in (
                self._mixed(engine, seconds) if role == "colocated" else self._steps(role, engine, config, seconds)
            ):
                self.tell(step)
            self.spent += time.monotonic() - start
            left -= share
            del engine  # before the next one is made

    def _config(self, role: EngineRole) -> EngineConfig:
        return EngineConfig(
            role=role,
            model=self.path,
            kv_cache_bytes=self.kv_bytes,
            dtype=self.config.dtype,
            max_batch_tokens=MOST_TOKENS,
            chunk_tokens=STEP_TOKENS if role == "colocated" else None,
            max_running=MOST_REQUESTS,
            max_waiting=MOST_REQUESTS,
            device=DEVICES[self.config.device],
        )

    def _subject(self, description: Description) -> Subject:
        config = self.config
        return Subject(
            device=config.device,
            processor=processor(),
            threads=config.threads,
            temperature=config.temperature,
            longest_request=description.max_model_length,
            kv_tokens=description.max_request_tokens,
            decode_requests=MOST_REQUESTS,
        )

    def _steps(self, phase: Phase, engine: Engine, config: EngineConfig, seconds: float) -> Iterator[Step]:
        bench = Bench(engine, empty_twin(engine, config), self.model.vocab, self.config.temperature)
        survey = Survey(bench.visit, time.monotonic, self._progress(seconds))
        samples = survey.run(_batches(phase, engine.description), seconds)
        if len(samples) < FEWEST:
            raise self._too_short(phase, survey)
        return (step_of(batch, taken) for batch, taken in samples.items())

    def _mixed(self, engine: Engine, seconds: float) -> Iterator[MixedStep]:
        """None when there is no time or no memory for as many as it takes to tell anything."""
        bench = MixedBench(engine, self.model.vocab, self.config.temperature)
        survey = Survey(bench.visit, time.monotonic, self._progress(seconds), fewest=_FEWEST_MIXES)
        kinds = mixes(_bounds(engine.description))
        samples = survey.run(kinds, seconds) if kinds and seconds > 0 else {}
        return (mixed_step_of(mix, taken) for mix, taken in samples.items())

    def _progress(self, seconds: float) -> Callable[[object], None]:
        start = time.monotonic()

        def watch(kind: object) -> None:
            now = time.monotonic()
            if now - self.told >= _TELL_SECONDS:
                self.told = now
                share = (self.spent + min(now - start, seconds)) / self.config.seconds
                self.tell(Progress(min(1.0, share), str(kind)))

        return watch

    def _too_short(self, phase: Phase, survey: Survey[Batch, Sample]) -> WorkerFailure:
        needed = 3 * FEWEST * max(survey.costs.values()) / _SHARES[phase]  # runs: to begin, to warm up and to measure
        needed = max(needed, self.config.seconds * FEWEST / len(survey.costs))  # when other load made them slow
        return WorkerFailure(
            ExitReason.CONFIGURATION_INVALID,
            f"--seconds {self.config.seconds:g}: is enough for {len(survey.costs)} of the {FEWEST} different {phase} "
            f"steps that a law needs at least; give about {ceil(needed)}",
        )


def _engine(config: EngineConfig) -> Engine:
    try:
        return build_engine(config)
    except ModelDoesNotFit as error:
        raise WorkerFailure(ExitReason.MODEL_DOES_NOT_FIT, str(error)) from error


def _batches(phase: Phase, description: Description) -> list[Batch]:
    bounds = _bounds(description)
    batches = prefill_batches(bounds) if phase == "prefill" else decode_batches(bounds)
    if len(batches) < FEWEST:
        raise WorkerFailure(
            ExitReason.MODEL_DOES_NOT_FIT,
            f"requests of {bounds.longest} tokens and {bounds.blocks * bounds.block_tokens} tokens of KV memory allow "
            f"only {len(batches)} kinds of {phase} steps, {FEWEST} are the fewest",
        )
    return batches


def _bounds(description: Description) -> Bounds:
    block_tokens = description.layout.block_tokens
    return Bounds(description.max_model_length, description.max_request_tokens // block_tokens, block_tokens)
