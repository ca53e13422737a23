"""What the two figures of the paper need: a placement at many rates, and under many scales of the targets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from distserve_operator.placement.answer import Served
from distserve_operator.placement.question import Question
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.path import Path

SCALES: Final = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
SPEEDS: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


def scaled(question: Question, scale: float) -> Question:
    """The same question with all targets times `scale`."""
    slo = question.slo
    gap = None if slo.gap is None else slo.gap * scale
    return replace(question, slo=Slo(slo.ttft * scale, slo.tpot * scale, slo.attainment, gap))


def faster(trace: Path, speed: float) -> Path:
    """The same trace with its requests `speed` times as often."""
    return Path(trace.at(speed), trace.prompts, trace.outputs)


def telling_rate(served: Sequence[Served], attainment: float) -> float:
    """The rate at which scaling the targets shows most: the highest that holds them, else the lowest."""
    holding = [one.rate for one in served if one.attainment >= attainment]
    return max(holding) if holding else min(one.rate for one in served)
