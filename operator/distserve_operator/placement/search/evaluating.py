"""Bounds and simulated goodputs of candidates, each worked out once."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from distserve_operator.placement.bounds import (
    Demand,
    decode_rate,
    demand_of,
    in_flight,
    link_rate,
    mixed_rate,
    prefill_rate,
)
from distserve_operator.placement.goodput import MOST_REQUESTS, Window, steady_window, targets_of, whole_window
from distserve_operator.placement.question import FiniteWindow, Question, Steady
from distserve_operator.placement.rates import highest_passing
from distserve_operator.placement.serving import decode_rules, fleet_of, link_rules, prefill_rules
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape
from distserve_operator.placement.simulation.running import Fleet, Mixed, Outcome, Split, simulate
from distserve_operator.placement.simulation.state import DecodeRules, LinkRules
from distserve_operator.placement.workload.path import Path

_NO_LINK = LinkRules(0.0, 0.0, blocking=False, units=1)


@dataclass(slots=True)
class Evaluator:
    """Evaluates candidates of one question on one sample path."""

    question: Question
    path: Path
    demand: Demand = field(init=False)
    simulations: int = 0
    seen: set[Placement] = field(default_factory=set)  # placements that were simulated
    _known: dict[Hashable, float] = field(default_factory=dict)
    _held: dict[Pool, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.demand = demand_of(self.path, self.question.slo.attainment)

    def upper(self, placement: Placement) -> float:
        """No rate above it is held for long; from arithmetic alone."""
        if not isinstance(self.question.window, Steady):
            return math.inf  # a short burst may exceed every sustained rate
        if isinstance(placement, Colocated):
            one = replace(placement, pool=Pool(placement.pool.shape, 1))
            return placement.pool.replicas * self._once(("mixed", one), lambda: self._mixed_upper(one))
        n, m = placement.prefill.replicas, placement.decode.replicas
        link = link_rate(link_rules(self.question, placement), n, m, self.demand)
        prefill, decode = self.prefill_upper(placement.prefill.shape), self.decode_upper(placement.decode.shape)
        return min(n * prefill, m * decode, link)

    def prefill_upper(self, shape: Shape) -> float:
        """Rate that one prefill instance cannot exceed."""
        return self._once(
            ("prefill", shape), lambda: prefill_rate(prefill_rules(self.question, Pool(shape, 1)), self.demand)
        )

    def decode_upper(self, shape: Shape) -> float:
        """Rate that one decode instance cannot exceed."""
        tpot = self.question.slo.tpot
        return self._once(
            ("decode", shape), lambda: decode_rate(decode_rules(self.question, Pool(shape, 1)), self.demand, tpot)
        )

    def prefill_passes(self, pool: Pool, rate: float) -> bool:
        """Whether the prefill phase alone holds TTFT; a whole fleet with this pool cannot do better."""
        if isinstance(self.question.window, Steady) and rate > pool.replicas * self.prefill_upper(pool.shape):
            return False
        key = ("prefill passes", pool, rate)
        return bool(self._once(key, lambda: not self._run(self._prefill_only(pool), pool.shape.tp, rate).failed))

    def prefill_holds(self, pool: Pool, rate: float) -> bool:
        """As `prefill_passes`; what passes is taken to pass at lower rates, what fails to fail at higher ones."""
        passed, failed = self._held.get(pool, (0.0, math.inf))
        if passed < rate < failed:
            passes = self.prefill_passes(pool, rate)
            self._held[pool] = (rate, failed) if passes else (passed, rate)
            return passes
        return rate <= passed

    def prefill_goodput(self, pool: Pool) -> float:
        """Goodput of the prefill phase alone."""
        return self._once(("prefill goodput", pool), lambda: highest_passing(lambda r: self.prefill_passes(pool, r)))

    def decode_goodput(self, pool: Pool) -> float:
        """Goodput of the decode phase alone, judged by TPOT, as if prompts were read in no time."""
        fleet = Split(prefill_rules(self.question, Pool(pool.shape, 0)), decode_rules(self.question, pool), _NO_LINK)

        def passes(rate: float) -> bool:
            return not self._run(fleet, pool.shape.tp, rate).failed

        return self._once(("decode goodput", pool), lambda: highest_passing(passes))

    def passes(self, placement: Placement, rate: float) -> bool:
        """Whether a placement holds the targets at a rate."""
        if rate > self.upper(placement):
            return False
        self.seen.add(placement)
        key = ("passes", placement, rate)
        return bool(self._once(key, lambda: not self._simulate(placement, rate, patient=False).failed))

    def goodput(self, placement: Placement) -> float:
        """The highest rate that passes; see `rates`."""
        key = ("goodput", placement)
        return self._once(key, lambda: highest_passing(lambda rate: self.passes(placement, rate)))

    def watch(self, placement: Placement, rate: float) -> Outcome:
        """A whole run, whatever fails in it."""
        return self._simulate(placement, rate, patient=True)

    def missed(self, placement: Placement, rate: float) -> float:
        """Share of the requests that miss their targets, of a whole run."""
        return 1.0 if rate > self.upper(placement) else self.watch(placement, rate).missed

    def _simulate(self, placement: Placement, rate: float, patient: bool) -> Outcome:
        return self._run(fleet_of(self.question, placement), first_shape(placement).tp, rate, patient)

    def _run(self, fleet: Fleet, tp: int, rate: float, patient: bool = False) -> Outcome:
        """A run of a fleet whose first tokens come from instances of `tp`."""
        self.simulations += 1
        window = self._window(fleet.decode, rate)
        targets = targets_of(self.question, window, self.question.latency.laws[tp].host, patient)
        return simulate(fleet, self.path.first(window.count), rate, targets)

    def _window(self, decode: DecodeRules, rate: float) -> Window:
        """Which requests are judged at a rate."""
        if isinstance(self.question.window, FiniteWindow):
            return whole_window(len(self.path))
        return steady_window(in_flight(decode, self.demand, rate), self.question.window.requests, len(self.path))

    def _mixed_upper(self, placement: Colocated) -> float:
        fleet = fleet_of(self.question, placement)
        assert isinstance(fleet, Mixed)
        return mixed_rate(fleet.prompts, fleet.decode, self.demand)

    def _prefill_only(self, pool: Pool) -> Split:
        nobody = decode_rules(self.question, Pool(pool.shape, 0))
        return Split(prefill_rules(self.question, pool), nobody, _NO_LINK)

    def _once(self, key: Hashable, value: Callable[[], float]) -> float:
        if key not in self._known:
            self._known[key] = value()
        return self._known[key]


def path_of(question: Question) -> Path:
    """The sample path on which a question is searched, long enough for any of its runs."""
    if isinstance(question.window, FiniteWindow):
        return question.workload.first(question.seed, question.window.requests)
    return question.workload.sample(question.seed, MOST_REQUESTS)


def first_shape(placement: Placement) -> Shape:
    """Shape of the instances that produce first tokens."""
    return placement.prefill.shape if isinstance(placement, Disaggregated) else placement.pool.shape
