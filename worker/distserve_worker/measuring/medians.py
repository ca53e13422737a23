"""What the samples of one kind of step come to."""

import statistics
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeVar

from distserve_worker.measuring.batches import Batch
from distserve_worker.measuring.messages import MixedStep, Step
from distserve_worker.measuring.mixes import Mix
from distserve_worker.measuring.mixing import MixedSample
from distserve_worker.measuring.surveying import Sample

S = TypeVar("S", Sample, MixedSample)


def step_of(batch: Batch, samples: Sequence[Sample]) -> Step:
    """What the samples come to: the median of the half that was disturbed least by what else runs on the machine."""
    calm = _calm(samples)
    seconds = statistics.median(sample.seconds for sample in calm)
    return Step(
        phase=batch.phase,
        requests=len(batch.lengths),
        tokens=batch.tokens,
        squares=batch.squares,
        seconds=seconds,
        host_seconds=statistics.median(sample.host_seconds for sample in calm),
        spread=_spread(samples, seconds),
        repetitions=len(samples),
    )


def mixed_step_of(mix: Mix, samples: Sequence[MixedSample]) -> MixedStep:
    """As `step_of`, of both steps of each sample."""
    calm = _calm(samples)
    seconds = statistics.median(sample.seconds for sample in calm)
    return MixedStep(
        requests=mix.requests,
        context=mix.requests * mix.context,
        before=mix.before,
        chunk=mix.chunk,
        seconds=seconds,
        alone=statistics.median(sample.alone for sample in calm),
        spread=_spread(samples, seconds),
        repetitions=len(samples),
    )


def _calm(samples: Sequence[S]) -> list[S]:
    return sorted(samples, key=lambda sample: sample.waited)[: ceil(len(samples) / 2)]


def _spread(samples: Iterable[Sample | MixedSample], seconds: float) -> float:
    return statistics.median(abs(sample.seconds - seconds) for sample in samples) / seconds
