"""Finalists on fresh sample paths: the level that each holds, and the interval its goodput lies in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from distserve_operator.placement.answer import Candidate, Served
from distserve_operator.placement.goodput import MOST_REQUESTS, served
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.rates import STEP
from distserve_operator.placement.search.evaluating import GROWTH, Evaluator
from distserve_operator.placement.shape import Placement
from distserve_operator.placement.simulation.running import Outcome
from distserve_operator.placement.workload.path import Path

FRESH_PATHS: Final = 4
# After so many paths the others hardly turn what is this far from the share that may fail: so much of it is few, many.
CLEAR: Final = {1: (0.5, 1.6), 2: (0.75, 1.3)}
_SURE: Final = 0.02  # of all requests besides, where nearly none may fail
_T_95: Final = 3.182  # Student's t, two-sided 95 %, three degrees of freedom
_CELL: Final = 4  # levels within which a higher rate may do better than a lower one by chance
_FARTHEST: Final = 240  # levels below where goodput was expected
_APART: Final = 2  # levels at which the fall of attainment is looked at


@dataclass(frozen=True, slots=True)
class Verifier:
    """Looks at candidates again, on sample paths that the search has not seen."""

    question: Question
    evaluator: Evaluator
    paths: tuple[Path, ...]
    _seen: dict[tuple[Placement, float], list[Outcome]] = field(default_factory=dict)

    @classmethod
    def of(cls, question: Question, searched: Evaluator) -> "Verifier":
        """Fresh paths; under the finite-window rule the one path that it prescribes."""
        if isinstance(question.window, FiniteWindow):
            return cls(question, searched, (searched.path,))
        seeds = range(question.seed + 1, question.seed + 1 + FRESH_PATHS)
        return cls(question, searched, tuple(question.workload.sample(seed, MOST_REQUESTS) for seed in seeds))

    def level(self, placement: Placement, near: int, least: int = 0) -> int | None:
        """The level that a candidate holds, all paths together, about `near`; None: it is below `least`.

        Whatever `near` is and whatever the targets are, the levels within a cell are tried in the same order.
        """
        low = near - near % _CELL
        upper = self._holds_level(placement, low + 2)
        if upper:
            while self._holds_level(placement, low + _CELL):
                low += _CELL
                upper = self._holds_level(placement, low + 2)
        else:
            while low >= 0 and not self._holds_level(placement, low):
                low -= _CELL
                if low + _CELL <= max(least, near - _FARTHEST):
                    return None
                upper = self._holds_level(placement, low + 2)
        low += 2 * upper
        if low < 0 or low + 1 < least:
            return None
        reached = low + self._holds_level(placement, low + 1)
        return reached if reached >= least else None

    def measure(self, placement: Placement, level: int | None) -> Candidate:
        """Goodput at the `level` that is held, None: none, and the interval that it lies in at 95 %."""
        if level is None:
            return Candidate(placement, 0.0, (0.0, 0.0))
        reached = self.evaluator.ladder.rate(placement, level)
        if len(self.paths) == 1:
            return Candidate(placement, reached, (reached, reached * STEP))
        attained = self._attained(placement, reached)
        error = _T_95 * float(np.std(attained, ddof=1)) / math.sqrt(len(attained))
        half = reached * min(0.5, max(error / max(self._fall(placement, level), 0.001), 1.0) * (STEP - 1))
        return Candidate(placement, reached, (reached - half, reached + half))

    def holds(self, placement: Placement, rate: float) -> bool:
        """Whether enough requests of all paths together meet the targets, and waiting does not grow."""
        share = 1 - self.question.slo.attainment
        for count in range(1, len(self.paths) + 1):
            seen = self._outcomes(placement, rate, count)
            missed = sum(one.missed for one in seen) / count
            growth = sum(one.growth for one in seen) / count
            few, many = CLEAR.get(count, (-1.0, math.inf))
            if missed > many * share + _SURE:
                return False
            if missed < few * share and growth <= GROWTH:
                return True
        return missed <= share + 1e-9 and (growth <= GROWTH or isinstance(self.question.window, FiniteWindow))

    def watch(self, placement: Placement, rate: float) -> Served:
        """All judged requests of all paths at one rate."""
        outcomes = self._outcomes(placement, rate, len(self.paths))
        return served(_together(outcomes), rate, self.question)

    def _fall(self, placement: Placement, level: int) -> float:
        """By how much attainment is lower a level above, from the next one that was looked at on all paths."""
        rates = {above: self.evaluator.ladder.rate(placement, level + above) for above in range(_APART, _FARTHEST)}
        whole = (
            above for above, rate in rates.items() if len(self._seen.get((placement, rate), ())) == len(self.paths)
        )
        above = next(whole, _APART)
        attained, past = (
            self._attained(placement, self.evaluator.ladder.rate(placement, one)) for one in (level, level + above)
        )
        return float(np.mean(attained) - np.mean(past)) / above

    def _holds_level(self, placement: Placement, level: int) -> bool:
        return level < 0 or self.holds(placement, self.evaluator.ladder.rate(placement, level))

    def _attained(self, placement: Placement, rate: float) -> list[float]:
        return [1 - one.missed for one in self._outcomes(placement, rate, len(self.paths))]

    def _outcomes(self, placement: Placement, rate: float, count: int) -> list[Outcome]:
        """What was seen on the first `count` paths; each is run once."""
        seen = self._seen.setdefault((placement, rate), [])
        for path in self.paths[len(seen) : count]:
            seen.append(self.evaluator.watch(placement, rate, path))
        return seen[:count]


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        np.concatenate([outcome.ttft for outcome in outcomes]),
        np.concatenate([outcome.tpot for outcome in outcomes]),
        np.concatenate([outcome.gap for outcome in outcomes]),
        any(outcome.failed for outcome in outcomes),
        float(np.mean([outcome.missed for outcome in outcomes])),
        sum(outcome.put_back for outcome in outcomes),
        float(np.mean([outcome.growth for outcome in outcomes])),
    )
