"""Goodput of one placement: the highest rate at which enough requests meet their targets.

In steady state: the requests that find an empty system are dropped, later arrivals keep the load up while the last
judged ones are served.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from distserve_operator.placement.answer import Percentiles, Served
from distserve_operator.placement.latency.law import HostCost
from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.simulation.running import Outcome
from distserve_operator.placement.simulation.state import Targets
from distserve_operator.placement.slo import Slo

TAIL: Final = 0.5  # requests after the judged ones, as a multiple of those in flight
MOST_REQUESTS: Final = 80_000  # of one run
SHORTEST: Final = 100  # requests of a stretch
PUT_BACK: Final = 0.01  # of a run's requests: what gives blocks back reads prompts again, and does so for ever one day


@dataclass(frozen=True, slots=True)
class Window:
    """Which requests of a run are judged: those from `start` to `stop` of `count`.

    `stretch`: requests in flight share their fate, so a run is looked at in pieces of so many; 0: only as a whole.
    """

    start: int
    stop: int
    count: int
    stretch: int

    @property
    def judged(self) -> int:
        """How many are judged."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Span:
    """How long a run is: requests before the judged ones and these, as multiples of those in flight, within bounds.

    `least`: judged requests, unless a question asks for more. `early`: whether a run may end as soon as few enough fail
    for some time.
    """

    warm_up: float
    judged: float
    least: int
    most: int  # judged requests that the multiples may ask for, and as many before them
    early: bool

    def window(self, in_flight: float, asked: int, most: int) -> Window:
        """Judged requests between a warm-up that fills the fleet and a tail that keeps it busy.

        It does not depend on the targets, so what differs by targets differs on the same requests. `most`: of a run.
        """
        least = max(asked, self.least)
        start = math.ceil(min(self.warm_up * in_flight, max(self.most, in_flight))) + least // 10
        stop = start + max(least, math.ceil(min(self.judged * in_flight, max(self.most, in_flight))))
        count = min(most, stop + math.ceil(TAIL * in_flight) + least // 20)
        stop = min(stop, math.ceil(0.95 * count))
        stretch = max(SHORTEST, math.ceil(in_flight)) if self.early else 0
        return Window(min(start, stop // 3), stop, count, stretch)


# Whoever fails in a short run fails in a long one. The reverse is not so: near its limit a fleet fills up slowly, by
# chance, gives blocks back, reads prompts again, and does not recover.
SHORT: Final = Span(warm_up=1.5, judged=2.0, least=1, most=6000, early=True)
LONG: Final = Span(warm_up=5.0, judged=3.0, least=8000, most=20_000, early=False)
VERIFIED: Final = Span(warm_up=5.0, judged=5.0, least=20_000, most=30_000, early=False)


@dataclass(frozen=True, slots=True)
class Drift:
    """By how much runs may get worse while they are judged, in the mean, and yet be taken to go on like that."""

    growth: float  # seconds a second by which waiting grows: a queue that grows for ever meets any target for long
    slowing: float  # share by which the time per token grows from the first third of the requests to the last


# One run of the search says little: what is ruled out here is never looked at again. Those of all fresh paths together
# are longer, and where a fleet does not fill up their time per token varies by half of what they may; that of one of
# these paths alone varies by twice as much.
ONE_RUN: Final = Drift(growth=0.01, slowing=0.3)
ALL_PATHS: Final = Drift(growth=0.003, slowing=0.15)
ONE_PATH: Final = Drift(growth=0.003, slowing=0.3)


def whole_window(count: int) -> Window:
    """All requests, from an empty system."""
    return Window(0, count, count, 0)


def may_fail(slo: Slo, judged: int) -> int:
    """How many of so many judged requests may miss their targets."""
    return math.floor((1 - slo.attainment) * judged + 1e-9)


def steady(outcomes: Sequence[Outcome], allowed: Drift) -> bool:
    """Whether runs would go on like that: few requests are put back, and they drift by no more than is allowed."""
    runs = len(outcomes)
    put_back, judged = sum(one.put_back for one in outcomes), sum(len(one.ttft) for one in outcomes)
    return (
        put_back <= PUT_BACK * judged
        and sum(one.growth for one in outcomes) <= allowed.growth * runs
        and sum(one.slowing for one in outcomes) <= allowed.slowing * runs
    )


def targets_of(question: Question, window: Window, host: HostCost, failures: int | None = None) -> Targets:
    """The targets as the simulation judges them; it stops after more than so many `failures`: those that may be."""
    slo = question.slo
    joint = not isinstance(question.window, FiniteWindow)
    return Targets(
        ttft=float(slo.ttft),
        tpot=float(slo.tpot),
        gap=math.inf if slo.gap is None else float(slo.gap),
        handling=float(host.per_request + host.client),
        per_token=float(host.per_prompt_token),
        start=window.start,
        stop=window.stop,
        failures=may_fail(slo, window.judged) if failures is None else failures,
        share=float(1 - slo.attainment),
        stretch=window.stretch,
        joint=joint,
    )


def all_met(outcome: Outcome, slo: Slo) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Of each judged request whether it meets all targets that are set."""
    met = (outcome.ttft <= slo.ttft) & (outcome.tpot <= slo.tpot)
    return met if slo.gap is None else met & (outcome.gap <= slo.gap)


def served(outcome: Outcome, rate: float, question: Question) -> Served:
    """What a run says of a fleet at one rate."""
    met = all_met(outcome, question.slo)
    later = outcome.tpot > 0  # those of a single token have none to wait for
    ttft, tpot, gap = map(_percentiles, (outcome.ttft, outcome.tpot[later], outcome.gap[later]))
    return Served(rate, float(np.mean(met)), ttft, tpot, gap)


def against_targets(slo: Slo, seen: Served) -> list[tuple[str, float, float]]:
    """Name, 90th percentile and target of each latency that has a target and that requests have, in seconds."""
    latencies = (("TTFT", seen.ttft, slo.ttft), ("TPOT", seen.tpot, slo.tpot), ("Gap", seen.gap, slo.gap))
    return [(name, one.p90, target) for name, one, target in latencies if one is not None and target is not None]


def _percentiles(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Percentiles | None:
    """Nearest rank, so that a request that never finished does not turn its neighbours into NaN; None of none."""
    if len(seconds) == 0:
        return None
    return Percentiles(*(float(value) for value in np.percentile(seconds, [50, 90, 99], method="inverted_cdf")))
