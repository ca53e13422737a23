"""Bounds and simulated goodputs of candidates, each worked out once."""

import math
from collections.abc import Callable, Hashable
from dataclasses import InitVar, dataclass, field, replace
from typing import Final

from distserve_operator.placement.bounds import (
    Demand,
    decode_rate,
    demand_of,
    in_flight,
    link_rate,
    mixed_rate,
    prefill_rate,
)
from distserve_operator.placement.goodput import (
    LONG,
    MOST_REQUESTS,
    ONE_RUN,
    SHORT,
    VERIFIED,
    Span,
    Window,
    steady,
    targets_of,
    whole_window,
)
from distserve_operator.placement.question import FiniteWindow, Kind, Question, Steady
from distserve_operator.placement.rates import PER_DEVICE, Ladder, highest_passing
from distserve_operator.placement.serving import decode_rules, fleet_of, link_rules, prefill_rules
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape
from distserve_operator.placement.simulation.running import Fleet, Mixed, Outcome, simulate
from distserve_operator.placement.simulation.state import DecodeRules, LinkRules, SplitRules
from distserve_operator.placement.workload.path import Path

LONGER: Final = 3  # times as many requests are looked at where waiting seems to grow
SMOOTHED: Final = 0.8  # share of a rate that decode alone has to hold: prefill hands over more evenly than users come
CLOSE: Final = 1.05  # how far apart a rate that passes and one that fails may stay where only a bound is wanted
UNLIKELY: Final = 3.0  # standard deviations
_NO_LINK = LinkRules(0.0, 0.0, blocking=False, units=1)


@dataclass(slots=True)
class Evaluator:
    """Evaluates candidates of one question on one sample path."""

    question: Question
    path: Path
    ladder: Ladder = PER_DEVICE
    known_demand: InitVar[Demand | None] = None  # of the path, where it was looked at before
    demand: Demand = field(init=False)
    simulations: int = 0
    seen: set[Placement] = field(default_factory=set)  # placements that were simulated
    looked: int = 0  # placements that a search looked at, by their bounds at least
    _known: dict[Hashable, float] = field(default_factory=dict)
    _held: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _lenient: "Evaluator | None" = None

    def __post_init__(self, known_demand: Demand | None) -> None:
        self.demand = known_demand or demand_of(self.path, self.question.slo.attainment)

    def of_kind(self, only: Kind) -> "Evaluator":
        """One for fleets of one kind alone; what either finds out the other knows."""
        other = Evaluator(replace(self.question, only=only), self.path, self.ladder, self.demand)
        other._known, other._held = self._known, self._held
        return other

    def looks_at(self, number: int) -> None:
        """A search came by so many placements; others, before it, by the same ones."""
        self.looked = max(self.looked, number)

    def once(self, key: Hashable, value: Callable[[], float]) -> float:
        """What `key` names, worked out the first time that it is asked for."""
        if key not in self._known:
            self._known[key] = value()
        return self._known[key]

    def upper(self, placement: Placement) -> float:
        """No rate above it is held for long; from arithmetic alone."""
        if not isinstance(self.question.window, Steady):
            return math.inf  # a short burst may exceed every sustained rate
        if isinstance(placement, Colocated):
            one = replace(placement, pool=Pool(placement.pool.shape, 1))
            return placement.pool.replicas * self.once(("mixed", one), lambda: self._mixed_upper(one))
        n, m = placement.prefill.replicas, placement.decode.replicas
        prefill, decode = self.prefill_upper(placement.prefill.shape), self.decode_upper(placement.decode.shape)
        return min(n * prefill, m * decode, self._link_upper(placement))

    def prefill_upper(self, shape: Shape) -> float:
        """Rate that one prefill instance cannot exceed."""
        return self.once(
            ("prefill", shape), lambda: prefill_rate(prefill_rules(self.question, Pool(shape, 1)), self.demand)
        )

    def decode_upper(self, shape: Shape) -> float:
        """Rate that one decode instance cannot exceed."""
        tpot = self.question.slo.tpot
        return self.once(
            ("decode", shape), lambda: decode_rate(decode_rules(self.question, Pool(shape, 1)), self.demand, tpot)
        )

    def prefill_passes(self, pool: Pool, rate: float) -> bool:
        """Whether the prefill phase alone holds TTFT; a whole fleet with this pool cannot do better."""
        if isinstance(self.question.window, Steady) and rate > pool.replicas * self.prefill_upper(pool.shape):
            return False
        nobody = decode_rules(self.question, Pool(pool.shape, 0))
        fleet = SplitRules(prefill_rules(self.question, pool), nobody, _NO_LINK)
        return self._alone("prefill", fleet, pool, rate)

    def decode_passes(self, pool: Pool, rate: float) -> bool:
        """Whether the decode phase alone holds TPOT, as if prompts were read and moved in no time."""
        nobody = prefill_rules(self.question, Pool(pool.shape, 0))
        fleet = SplitRules(nobody, decode_rules(self.question, pool), _NO_LINK)
        return self._alone("decode", fleet, pool, rate)

    def prefill_holds(self, pool: Pool, rate: float) -> bool:
        """As `prefill_passes`; what passes is taken to pass at lower rates, what fails to fail at higher ones."""
        return self._between(("prefill", pool), rate, lambda one: self.prefill_passes(pool, one))

    def decode_holds(self, pool: Pool, rate: float) -> bool:
        """Whether the decode phase alone holds what a whole fleet with this pool would need of it at `rate`."""
        return self._between(("decode", pool), rate, lambda one: self.decode_passes(pool, SMOOTHED * one))

    def prefill_goodput(self, pool: Pool) -> float:
        """Goodput of the prefill phase alone."""
        return self.once(("prefill goodput", pool), lambda: highest_passing(lambda r: self.prefill_passes(pool, r)))

    def decode_goodput(self, pool: Pool) -> float:
        """Goodput of the decode phase alone."""
        return self.once(("decode goodput", pool), lambda: highest_passing(lambda r: self.decode_passes(pool, r)))

    def passes(self, placement: Placement, rate: float) -> bool:
        """Whether a placement holds the targets at a rate."""
        if rate > self.upper(placement):
            return False
        self.seen.add(placement)
        return bool(self.once(("passes", placement, rate), lambda: self._passes(placement, rate)))

    def passes_briefly(self, placement: Placement, rate: float) -> bool:
        """As `passes`, of a short run alone: nearly without load a longer one says no more."""
        fleet, tp = fleet_of(self.question, placement), first_shape(placement).tp
        return bool(self.once(("briefly", placement, rate), lambda: self._holds(fleet, tp, rate, SHORT)))

    def holds_briefly(self, placement: Placement, level: int) -> bool:
        """As `holds`, of a short run alone; what fails there fails in a long one."""
        rate = self.ladder.rate(placement, level)
        return rate <= self.upper(placement) and self.passes_briefly(placement, rate)

    def holds(self, placement: Placement, level: int) -> bool:
        """Whether a placement holds the targets at a level of the ladder; see `passes`."""
        return self.passes(placement, self.ladder.rate(placement, level))

    def goodput(self, placement: Placement) -> float:
        """The highest rate that passes; see `rates`."""
        shares = self.ladder.shares(placement)
        passes = lambda rate: self.passes(placement, shares * rate)  # noqa: E731
        return self.once(("goodput", placement), lambda: shares * highest_passing(passes))

    def watch(
        self, placement: Placement, rate: float, path: Path | None = None, failures: int | None = None
    ) -> Outcome:
        """A run to be believed, on another `path` than that of the search; it ends after more than so many `failures`.

        None: it goes on to its end, whatever fails.
        """
        fleet = fleet_of(self.question, placement)
        window = self._window(fleet.decode, rate, VERIFIED)
        allowed = window.judged if failures is None else failures
        return self._run(fleet, first_shape(placement).tp, rate, window, allowed, path)

    def goes_on(self, placement: Placement, rate: float, seen: Outcome) -> bool | None:
        """Whether a fleet would go on at a rate as in a run.

        None where a burst or one phase alone is looked at, or the path is too short to fill a fleet that looks well.
        """
        if isinstance(self.question.window, FiniteWindow) or any(pool.replicas == 0 for pool in placement.pools):
            return None
        if rate > self.upper(placement) or not steady([seen], ONE_RUN):
            return False
        running = in_flight(fleet_of(self.question, placement).decode, self.demand, rate)
        return True if VERIFIED.warm_up * running <= len(self.path) else None

    @property
    def lenient(self) -> "Evaluator":
        """One with as much less attainment as a short run may miss by chance of what it has in the long run."""
        if self._lenient is None:
            self._lenient = self._with_less_attainment()
        return self._lenient

    def _with_less_attainment(self) -> "Evaluator":
        slo = self.question.slo
        chance = UNLIKELY * math.sqrt(slo.attainment * (1 - slo.attainment) / self.question.window.requests)
        relaxed = replace(slo, attainment=max(0.0, slo.attainment - chance))
        known = self.demand.at(relaxed.attainment)
        return Evaluator(replace(self.question, slo=relaxed), self.path, self.ladder, known)

    def judged(self, placement: Placement, rate: float) -> int:
        """Requests that `watch` judges."""
        return self._window(fleet_of(self.question, placement).decode, rate, VERIFIED).judged

    def _passes(self, placement: Placement, rate: float) -> bool:
        """A long run only of what does well in a short one."""
        fleet, tp = fleet_of(self.question, placement), first_shape(placement).tp
        short, long = (self._window(fleet.decode, rate, span) for span in (SHORT, LONG))
        enough = long.stop < LONGER * short.stop / 2
        return self.passes_briefly(placement, rate) and (enough or self._holds(fleet, tp, rate, LONG))

    def _alone(self, phase: str, fleet: SplitRules, pool: Pool, rate: float) -> bool:
        """Whether a fleet of one phase holds its target."""
        return bool(self.once((phase, pool, rate), lambda: self._holds(fleet, pool.shape.tp, rate, SHORT)))

    def _between(self, key: Hashable, rate: float, passes: Callable[[float], bool]) -> bool:
        """What `passes` says, where no lower rate is known to fail and no higher one to pass."""
        passed, failed = self._held.get(key, (0.0, math.inf))
        if not passed < rate < failed:
            return rate <= passed
        held = passes(rate)
        self._held[key] = (rate, failed) if held else (passed, rate)
        return held

    def _holds(self, fleet: Fleet, tp: int, rate: float, span: Span) -> bool:
        """Whether too few fail, now and as time goes on."""
        window, longer = (self._window(fleet.decode, rate, span, times) for times in (1, LONGER))
        seen = self._run(fleet, tp, rate, window)
        if seen.failed or isinstance(self.question.window, FiniteWindow) or steady([seen], ONE_RUN):
            return not seen.failed
        if longer == window:
            return False
        seen = self._run(fleet, tp, rate, longer)
        return not seen.failed and steady([seen], ONE_RUN)

    def _run(
        self,
        fleet: Fleet,
        tp: int,
        rate: float,
        window: Window,
        failures: int | None = None,
        path: Path | None = None,
    ) -> Outcome:
        """A run of a fleet whose first tokens come from instances of `tp`."""
        self.simulations += 1
        targets = targets_of(self.question, window, self.question.latency.laws[tp].host, failures)
        return simulate(fleet, (path or self.path).first(window.count), rate, targets)

    def _window(self, decode: DecodeRules, rate: float, span: Span, times: int = 1) -> Window:
        """Which requests are judged at a rate: `times` as many as usual."""
        if isinstance(self.question.window, FiniteWindow):
            return whole_window(len(self.path))
        least = times * self.question.window.requests
        return span.window(in_flight(decode, self.demand, rate), least, len(self.path))

    def _link_upper(self, placement: Disaggregated) -> float:
        rules = link_rules(self.question, placement)
        return link_rate(rules, placement.prefill.replicas, placement.decode.replicas, self.demand)

    def _mixed_upper(self, placement: Colocated) -> float:
        fleet = fleet_of(self.question, placement)
        assert isinstance(fleet, Mixed)
        return mixed_rate(fleet.prompts, fleet.decode, self.demand, self.question.slo.tpot)


def limit(holds: Callable[[float], bool], low: float, high: float) -> float:
    """A rate up to `high` that is not held, close above one that is, or `high` itself; `low` is held."""
    if math.isinf(high) or holds(high):
        return high
    while high > CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def path_of(question: Question) -> Path:
    """The sample path on which a question is searched, long enough for any of its runs."""
    if isinstance(question.window, FiniteWindow):
        return question.workload.first(question.seed, question.window.requests)
    return question.workload.sample(question.seed, longest_run(question.window))


def longest_run(window: Steady) -> int:
    """Requests of a sample path."""
    return max(MOST_REQUESTS, 2 * window.requests)


def first_shape(placement: Placement) -> Shape:
    """Shape of the instances that produce first tokens."""
    return placement.prefill.shape if isinstance(placement, Disaggregated) else placement.pool.shape
