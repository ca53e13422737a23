"""Measures both phases one after the other, so that only one engine is in memory."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

import torch

from distserve_proto.contract import ExitReason
from distserve_worker.engine.blueprint import EngineConfig, ModelDoesNotFit
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
from distserve_worker.measuring.messages import Message, Phase, Progress, Step, Subject
from distserve_worker.measuring.stepping import Bench
from distserve_worker.measuring.surveying import FEWEST, Sample, Survey
from distserve_worker.weights.config import ModelConfig

_PHASES: Final[tuple[Phase, ...]] = ("prefill", "decode")
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
        for place, phase in enumerate(_PHASES):
            self.tell(Progress(self.spent / self.config.seconds, f"loading for {phase}"))
            engine = self._engine(phase)
            if place == 0:
                self.tell(self._subject(engine.description))
            start = time.monotonic()
            seconds = (self.config.seconds - self.spent) / (len(_PHASES) - place)
            for step in self._steps(phase, engine, seconds):
                self.tell(step)
            self.spent += time.monotonic() - start

    def _engine(self, phase: Phase) -> Engine:
        engine_config = EngineConfig(
            role=phase,
            model=self.path,
            kv_cache_bytes=self.kv_bytes,
            dtype=self.config.dtype,
            max_batch_tokens=MOST_TOKENS,
            max_running=MOST_REQUESTS,
            max_waiting=MOST_REQUESTS,
            device=DEVICES[self.config.device],
        )
        try:
            return build_engine(engine_config)
        except ModelDoesNotFit as error:
            raise WorkerFailure(ExitReason.MODEL_DOES_NOT_FIT, str(error)) from error

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

    def _steps(self, phase: Phase, engine: Engine, seconds: float) -> Iterator[Step]:
        device = torch.device(DEVICES[self.config.device])
        empty = empty_twin(engine, phase, self.model.vocab, device)
        bench = Bench(engine, empty, self.model.vocab, self.config.temperature)
        survey = Survey(bench.visit, time.monotonic, self._progress(seconds))
        samples = survey.run(_batches(phase, engine.description), seconds)
        if len(samples) < FEWEST:
            raise self._too_short(phase, survey)
        return (step_of(batch, taken) for batch, taken in samples.items())

    def _progress(self, seconds: float) -> Callable[[Batch], None]:
        start = time.monotonic()

        def watch(batch: Batch) -> None:
            now = time.monotonic()
            if now - self.told >= _TELL_SECONDS:
                self.told = now
                share = (self.spent + min(now - start, seconds)) / self.config.seconds
                what = f"{batch.phase} of {len(batch.lengths)} requests, {batch.tokens} tokens"
                self.tell(Progress(min(1.0, share), what))

        return watch

    def _too_short(self, phase: Phase, survey: Survey) -> WorkerFailure:
        needed = len(_PHASES) * 3 * FEWEST * max(survey.costs.values())  # runs: to begin, to warm up and to measure
        return WorkerFailure(
            ExitReason.CONFIGURATION_INVALID,
            f"--seconds {self.config.seconds:g}: is enough for {len(survey.costs)} of the {FEWEST} different {phase} "
            f"steps that a law needs at least; give about {ceil(needed)}",
        )


def step_of(batch: Batch, samples: Sequence[Sample]) -> Step:
    """What the samples come to: the median of the half that was disturbed least by what else runs on the machine."""
    calm = sorted(samples, key=lambda sample: sample.waited)[: ceil(len(samples) / 2)]
    seconds = statistics.median(sample.seconds for sample in calm)
    return Step(
        phase=batch.phase,
        requests=len(batch.lengths),
        tokens=batch.tokens,
        squares=batch.squares,
        seconds=seconds,
        host_seconds=statistics.median(sample.host_seconds for sample in calm),
        spread=statistics.median(abs(sample.seconds - seconds) for sample in samples) / seconds,
        repetitions=len(samples),
    )


def _batches(phase: Phase, description: Description) -> list[Batch]:
    block_tokens = description.layout.block_tokens
    bounds = Bounds(description.max_model_length, description.max_request_tokens // block_tokens, block_tokens)
    batches = prefill_batches(bounds) if phase == "prefill" else decode_batches(bounds)
    if len(batches) < FEWEST:
        raise WorkerFailure(
            ExitReason.MODEL_DOES_NOT_FIT,
            f"requests of {bounds.longest} tokens and {bounds.blocks * block_tokens} tokens of KV memory allow only "
            f"{len(batches)} kinds of {phase} steps, {FEWEST} are the fewest",
        )
    return batches
