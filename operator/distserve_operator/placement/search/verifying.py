"""Finalists on fresh sample paths: the level that each holds, and the interval its goodput lies in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from distserve_operator.placement.answer import Candidate, Served
from distserve_operator.placement.goodput import ALL_PATHS, ONE_PATH, PUT_BACK, may_fail, served, steady
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.rates import LEVELS, STEP
from distserve_operator.placement.search.evaluating import Evaluator, longest_run
from distserve_operator.placement.search.joint import WIDEST
from distserve_operator.placement.shape import Placement
from distserve_operator.placement.simulation.running import Outcome
from distserve_operator.placement.workload.path import Path

FRESH_PATHS: Final = 4
_T_95: Final = 3.182  # Student's t, two-sided 95 %, three degrees of freedom
_CELL: Final = 4  # levels within which a higher rate may do better than a lower one by chance
_UNEVEN: Final = 2  # times as many may fail on one path as on all in the mean
_ASTRAY: Final = 2.0  # standard deviations
_FAR: Final = 8  # levels at most by which what one path holds is followed


@dataclass(frozen=True, slots=True)
class _Known:
    """What one path has shown at a rate: requests that missed their targets, at least so many if it ended early."""

    missed: int
    whole: bool
    goes_on: bool  # by itself


@dataclass(slots=True)
class Verifier:
    """Looks at candidates again, on sample paths that the search has not seen."""

    question: Question
    evaluator: Evaluator
    paths: tuple[Path, ...]
    _ahead: int = 0  # levels by which the first candidate holds more here than where it was searched
    _found: dict[Placement, int] = field(default_factory=dict)
    _seen: dict[tuple[Placement, float], list[Outcome]] = field(default_factory=dict)
    _known: dict[tuple[Placement, float, int], _Known] = field(default_factory=dict)
    _held: dict[tuple[Placement, float], bool] = field(default_factory=dict)
    _levels: dict[tuple[Placement, int], list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, question: Question, searched: Evaluator) -> "Verifier":
        """Fresh paths; under the finite-window rule the one path that it prescribes."""
        if isinstance(question.window, FiniteWindow):
            return cls(question, searched, (searched.path,))
        seeds = range(question.seed + 1, question.seed + 1 + FRESH_PATHS)
        return cls(
            question, searched, tuple(question.workload.sample(seed, longest_run(question.window)) for seed in seeds)
        )

    @property
    def judged(self) -> int:
        """How many candidates it has looked at."""
        return len({placement for placement, _ in self._held})

    def level(self, placement: Placement, near: int, least: int = 0) -> int | None:
        """The level that a candidate holds, all paths together, about `near`; None: not even `least`.

        Whatever `near` is and whatever the targets are, the levels within a cell are tried in the same order.
        """
        if placement not in self._found:
            found = self._level(placement, near if least > 0 else max(0, near + self._ahead), least)
            if found is None:
                return None
            if not self._found:
                self._ahead = found - near
            self._found[placement] = found
        return self._found[placement] if self._found[placement] >= least else None

    def _level(self, placement: Placement, near: int, least: int) -> int | None:
        if least > 0 and self.evaluator.ladder.rate(placement, least) > self.evaluator.upper(placement):
            return None
        low = near - near % _CELL
        upper = least > low + 2 or self._holds_level(placement, low + 2)
        if not upper and least > low and not (least == low + 1 and self._holds_level(placement, least)):
            return None  # with the highest that is left, which is soon known
        cell = self._cell_above(placement, low) if upper else self._cell_below(placement, low, least)
        if cell is None:
            return None
        if cell != low:
            upper = self._holds_level(placement, cell + 2)
        low = cell + 2 * upper
        if low < 0 or low + 1 < least:
            return None
        reached = low + self._holds_level(placement, low + 1)
        return reached if reached >= least else None

    def _cell_above(self, placement: Placement, low: int) -> int:
        """The highest cell that a candidate holds from `low` up, which it is known to hold."""
        while low < 1 << LEVELS and self._holds_level(placement, low + _CELL):
            low += _CELL
        return low

    def _cell_below(self, placement: Placement, low: int, floor: int) -> int | None:
        """The cell that a candidate holds from `low` down; None: not even the lowest, with the `floor`, is held.

        Of a challenger that fails twice this is likely, so the lowest is tried early.
        """
        lowest, stride = floor - floor % _CELL, _CELL
        failed, held = low + _CELL, low
        while not self._holds_level(placement, held):
            if held == lowest or (floor > 0 and stride == 2 * _CELL and not self._holds_level(placement, lowest)):
                return None
            failed, held = held, max(lowest, held - stride)
            stride *= 2
        while failed - held > _CELL:
            middle = held + (failed - held) // 2 // _CELL * _CELL
            held, failed = (middle, failed) if self._holds_level(placement, middle) else (held, middle)
        return held

    def measure(self, placement: Placement, level: int | None) -> Candidate:
        """Goodput at the `level` that is held, None: none, and the interval that it lies in at 95 %."""
        if level is None:
            return Candidate(placement, 0.0, (0.0, 0.0))
        reached = self.evaluator.ladder.rate(placement, level)
        if len(self.paths) == 1:
            return Candidate(placement, reached, (reached, reached * STEP))
        apart = self._all_apart(placement, level)
        error = _T_95 * float(np.std(apart, ddof=1)) / math.sqrt(len(apart))
        middle = float(np.mean(apart))
        low, high = min(0.0, middle - error - 0.5), max(0.0, middle + error + 0.5)
        return Candidate(placement, reached, (reached * STEP**low, reached * STEP**high))

    def astray(self, one: Placement, level: int, other: Placement, held: int) -> int:
        """By how many levels a path may misjudge two candidates against each other, which hold these; within reason.

        That a path is heavier than others is no matter: then it is for both.
        """
        apart = np.subtract(self._all_apart(one, level), self._all_apart(other, held))
        return min(WIDEST, int(_ASTRAY * float(np.std(apart, ddof=1)))) if len(apart) > 1 else 0

    def holds(self, placement: Placement, rate: float) -> bool:
        """Whether enough requests of all paths together meet the targets, and would go on so."""
        if rate > self.evaluator.upper(placement):
            return False
        key = placement, rate
        if key not in self._held:
            self._held[key] = self._holds(placement, rate)
        return self._held[key]

    def _holds(self, placement: Placement, rate: float) -> bool:
        """It ends as soon as more fail than may on all paths, or `_UNEVEN` times as many as may on one.

        So it does when more are put back than may be on all paths.
        """
        judged = self.evaluator.judged(placement, rate)
        alone = _UNEVEN * may_fail(self.question.slo, judged)
        left = may_fail(self.question.slo, judged * len(self.paths))
        finite = isinstance(self.question.window, FiniteWindow)
        put_back = math.inf if finite else PUT_BACK * judged * len(self.paths)
        seen = []
        for path in range(len(self.paths)):
            seen.append(self._run(placement, rate, path, min(left, alone)))
            left -= round(seen[-1].missed * judged)
            put_back -= seen[-1].put_back
            if seen[-1].failed or put_back < 0:
                return False
        if not finite and not steady(seen, ALL_PATHS):
            return False
        self._seen[placement, rate] = seen
        return True

    def _run(self, placement: Placement, rate: float, path: int, failures: int) -> Outcome:
        """A run on one path, which ends after more than so many `failures`."""
        seen = self.evaluator.watch(placement, rate, self.paths[path], failures)
        missed = failures + 1 if seen.failed else round(seen.missed * len(seen.ttft))
        self._known[placement, rate, path] = _Known(missed, not seen.failed, steady([seen], ONE_PATH))
        return seen

    def _all_apart(self, placement: Placement, level: int) -> list[int]:
        if (placement, level) not in self._levels:
            self._levels[placement, level] = [self._apart(placement, level, path) for path in range(len(self.paths))]
        return self._levels[placement, level]

    def _apart(self, placement: Placement, level: int, path: int) -> int:
        """How many levels from `level` the highest one lies that is held on one path."""

        def held(above: int) -> bool:
            return self._holds_alone(placement, self.evaluator.ladder.rate(placement, level + above), path)

        step = (
            1
            if self._outcomes(placement, self.evaluator.ladder.rate(placement, level))[path].missed
            <= (1 - self.question.slo.attainment)
            else -1
        )
        apart = 0
        while abs(apart) < _FAR and held(apart + step) == (step > 0):
            apart += step
        return apart if step > 0 else apart - 1

    def _holds_alone(self, placement: Placement, rate: float, path: int) -> bool:
        """Whether a rate is held on one path; that may be known from a run on all."""
        if rate > self.evaluator.upper(placement):
            return False
        allowed = may_fail(self.question.slo, self.evaluator.judged(placement, rate))
        known = self._known.get((placement, rate, path))
        if known is None or (not known.whole and known.missed <= allowed):
            self._run(placement, rate, path, allowed)
            known = self._known[placement, rate, path]
        return known.missed <= allowed and known.goes_on

    def watch(self, placement: Placement, rate: float) -> Served:
        """What all judged requests of all paths say at one rate."""
        return served(self.together(placement, rate), rate, self.question)

    def together(self, placement: Placement, rate: float) -> Outcome:
        """All judged requests of all paths at one rate, whatever fails; drifts are those of the mean path."""
        return _together(self._outcomes(placement, rate))

    def _holds_level(self, placement: Placement, level: int) -> bool:
        return level < 0 or self.holds(placement, self.evaluator.ladder.rate(placement, level))

    def _outcomes(self, placement: Placement, rate: float) -> list[Outcome]:
        """What was seen on all paths, whatever fails; each is run once."""
        if (placement, rate) not in self._seen:
            self._seen[placement, rate] = [self.evaluator.watch(placement, rate, path) for path in self.paths]
        return self._seen[placement, rate]


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        np.concatenate([outcome.ttft for outcome in outcomes]),
        np.concatenate([outcome.tpot for outcome in outcomes]),
        np.concatenate([outcome.gap for outcome in outcomes]),
        any(outcome.failed for outcome in outcomes),
        float(np.mean([outcome.missed for outcome in outcomes])),
        sum(outcome.put_back for outcome in outcomes),
        float(np.mean([outcome.growth for outcome in outcomes])),
        float(np.mean([outcome.slowing for outcome in outcomes])),
    )
