"""Finalists on fresh sample paths: goodput with its interval, and which differences are none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from distserve_operator.placement.answer import Candidate, Served
from distserve_operator.placement.goodput import MOST_REQUESTS, served
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.rates import STEP
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.shape import Disaggregated, Placement
from distserve_operator.placement.simulation.running import Outcome

FRESH_PATHS: Final = 4
_T_95: Final = 3.182  # Student's t, two-sided 95 %, three degrees of freedom
_STRIDE: Final = 4  # grid steps away from the screening's answer at a time
_FARTHEST: Final = 240  # grid steps


@dataclass(frozen=True, slots=True)
class Verifier:
    """Looks at candidates again, on sample paths that the search has not seen."""

    question: Question
    evaluators: tuple[Evaluator, ...]

    @classmethod
    def of(cls, question: Question, searched: Evaluator) -> "Verifier":
        """Fresh paths; under the finite-window rule the one path that it prescribes."""
        if isinstance(question.window, FiniteWindow):
            return cls(question, (searched,))
        seeds = range(question.seed + 1, question.seed + 1 + FRESH_PATHS)
        paths = [question.workload.sample(seed, MOST_REQUESTS) for seed in seeds]
        return cls(question, tuple(Evaluator(question, path) for path in paths))

    def measure(self, placement: Placement, expected: float) -> Candidate:
        """Goodput near the `expected` one, all paths together, and the interval that holds it at 95 %."""
        if isinstance(self.question.window, FiniteWindow) or expected == 0:
            return Candidate(placement, expected, (expected, expected * STEP))
        attained: dict[int, list[float]] = {}

        def holds(place: int) -> bool:
            attained[place] = self._attained(placement, expected * STEP**place)
            return self._enough(attained[place])

        low, high = _bracket(holds)
        if low is None:
            return Candidate(placement, 0.0, (0.0, expected * STEP**high))
        reached = expected * STEP**low
        error = _T_95 * float(np.std(attained[low], ddof=1)) / math.sqrt(len(attained[low]))
        past = max(attained)
        fall = float(np.mean(attained[low]) - np.mean(attained[past])) / max(1, past - low)
        half = reached * min(0.5, max(error / max(fall, 0.001) * (STEP - 1), (STEP - 1) / 2))
        return Candidate(placement, reached, (reached - half, reached + half))

    def holds(self, placement: Placement, rate: float) -> bool:
        """Whether enough requests of all paths together meet the targets."""
        return self._enough(self._attained(placement, rate))

    def watch(self, placement: Placement, rate: float) -> Served:
        """All judged requests of all paths at one rate."""
        outcomes = [evaluator.watch(placement, rate) for evaluator in self.evaluators]
        whole = Outcome(
            np.concatenate([outcome.ttft for outcome in outcomes]),
            np.concatenate([outcome.tpot for outcome in outcomes]),
            np.concatenate([outcome.gap for outcome in outcomes]),
            any(outcome.failed for outcome in outcomes),
            float(np.mean([outcome.missed for outcome in outcomes])),
            sum(outcome.put_back for outcome in outcomes),
        )
        return served(whole, rate, self.question)

    @property
    def simulations(self) -> int:
        """Runs so far."""
        return sum(evaluator.simulations for evaluator in self.evaluators)

    def _attained(self, placement: Placement, rate: float) -> list[float]:
        return [1 - evaluator.missed(placement, rate) for evaluator in self.evaluators]

    def _enough(self, attained: list[float]) -> bool:
        return float(np.mean(attained)) >= self.question.slo.attainment - 1e-9


def _bracket(holds: Callable[[int], bool]) -> tuple[int | None, int]:
    """The highest place around 0 that holds, found in strides and then by halves, and the next one; None: none near."""
    low, high = 0, _STRIDE
    if holds(low):
        while high <= _FARTHEST and holds(high):
            low, high = high, high + _STRIDE
    else:
        low, high = -_STRIDE, 0
        while not holds(low):
            low, high = low - _STRIDE, low
            if low < -_FARTHEST:
                return None, high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def preferred(candidates: Sequence[Candidate]) -> Candidate:
    """The simplest of those that cannot be told from the best: colocated, fewer devices, fewer stages, narrower."""
    best = max(candidates, key=lambda candidate: candidate.per_device)
    level = best.interval[0] / best.placement.devices
    tied = [one for one in candidates if one.interval[1] / one.placement.devices >= level and one.per_device >= level]
    return min(tied, key=_simplicity)


def _simplicity(candidate: Candidate) -> tuple[object, ...]:
    placement = candidate.placement
    split = isinstance(placement, Disaggregated)
    pools = [placement.prefill, placement.decode] if isinstance(placement, Disaggregated) else [placement.pool]
    stages, width = max(pool.shape.pp for pool in pools), max(pool.shape.tp for pool in pools)
    return split, placement.devices, stages, width, -candidate.goodput, str(placement)
