"""What a search says: the plan, why it, and what else there was."""

from dataclasses import dataclass, replace

from distserve_operator.placement.shape import Placement


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Served:
    """A placement as simulated at one rate.

    Latencies are infinite where requests did not finish, None where no request has one: with one output token it has
    neither TPOT nor gap.
    """

    rate: float  # NaN: not known
    attainment: float  # ratio of 0 to 1
    ttft: Percentiles | None
    tpot: Percentiles | None
    gap: Percentiles | None
    steady: bool | None = None  # whether it would go on like that; None: not looked at


@dataclass(frozen=True, slots=True)
class KvMove:
    """The KV of the mean request on its way from prefill to decode."""

    bytes: float
    seconds: float
    link: str  # "node" or "network"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement with its goodput in requests per second, and the interval it lies in (95 %, over seeds)."""

    placement: Placement
    goodput: float
    interval: tuple[float, float]

    @property
    def per_device(self) -> float:
        """Goodput per device."""
        return self.goodput / self.placement.devices

    def at_least(self, rate: float) -> "Candidate":
        """The same, known to hold a rate: one between two steps of the grid on which goodput is looked for."""
        low, high = self.interval
        return replace(self, goodput=max(self.goodput, rate), interval=(low, max(high, rate)))


@dataclass(frozen=True, slots=True)
class Counted:
    """How much work the search was."""

    evaluated: int  # candidates that were simulated
    pruned: int  # candidates that a bound ruled out; families left out as a whole count as one
    simulations: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. Not `feasible`: nothing was found to hold what is asked; then this is the best that was, and why."""

    feasible: bool
    chosen: Candidate | None  # None: no instance fits the devices at all
    served: Served | None  # at the rate asked for, or at its goodput
    kv: KvMove | None
    memory_per_device: dict[str, float]  # bytes: weights and KV of each role
    binding: str  # TTFT, TPOT, Gap, Attainment, Memory, Link, Devices or Rate, with the figures, for people
    reasons: tuple[str, ...]  # one sentence each
    runner_up: Candidate | None
    runner_up_lost: str
    best_disaggregated: Candidate | None
    best_colocated: Candidate | None
    flip_overlap: float | None  # chunk overlap from which on the verdict flips
    top: tuple[Candidate, ...]
    counted: Counted
    source: str  # of the latencies
