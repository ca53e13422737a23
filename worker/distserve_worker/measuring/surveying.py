"""Measures as many kinds of steps as a budget of seconds allows, all of them several times in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

FEWEST: Final = 4  # kinds: one more than a law has coefficients
REPETITIONS: Final = 3  # of each kind that is more than those; its first run warms up and tells what it costs
MOST_REPETITIONS: Final = 25


class Kind(Protocol):
    """A kind of step."""

    @property
    def work(self) -> tuple[int, ...]:
        """What its time grows with, each at most in proportion."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one step, and of the same step without a model."""

    seconds: float
    host_seconds: float
    waited: float  # share of `seconds` in which its thread did not run


K = TypeVar("K", bound=Kind)
S = TypeVar("S")


@dataclass(slots=True)
class Survey(Generic[K, S]):
    """One phase. Repetitions of a kind lie apart in time: a noisy neighbour spoils one of them, not all."""

    visit: Callable[[K], S]
    clock: Callable[[], float]
    watch: Callable[[K], None]  # told of each kind before its visit
    fewest: int = FEWEST
    costs: dict[K, float] = field(default_factory=dict)  # seconds of a visit, preparations included
    samples: dict[K, list[S]] = field(default_factory=dict)

    def run(self, kinds: Sequence[K], seconds: float) -> dict[K, list[S]]:
        """Samples of the kinds that can be repeated often enough in `seconds`; none if these are fewer than `fewest`.

        `kinds` rise in work. The first one is run in any case: `costs` tell how long it took.
        """
        end = self.clock() + seconds
        self.visit(kinds[0])  # whatever happens only once in a process
        self._visit(kinds[0])
        for kind in kinds[1:]:
            if self.clock() + self._needed(foreseen(kind, self.costs)) <= end:
                self._visit(kind)
        for number in range(MOST_REPETITIONS if len(self.costs) >= self.fewest else 0):
            for kind in self.costs:
                # Every kind gets one sample, however much slower the machine has become.
                if number == 0 or self.clock() + self.costs[kind] <= end:
                    self.samples.setdefault(kind, []).append(self._visit(kind))
        return self.samples

    def _needed(self, cost: float) -> float:
        """Seconds for one more kind that takes `cost`, and for the repetitions of all that there are then."""
        repetitions = 1 if len(self.costs) < self.fewest else REPETITIONS
        return cost + repetitions * (sum(self.costs.values()) + cost)

    def _visit(self, kind: K) -> S:
        self.watch(kind)
        start = self.clock()
        sample = self.visit(kind)
        self.costs[kind] = self.clock() - start
        return sample


def foreseen(kind: K, costs: Mapping[K, float]) -> float:
    """Most seconds that it can cost, from what others did: none grows faster than its work. 0 when nothing is known."""
    return min((cost * _growth(known, kind) for known, cost in costs.items()), default=0.0)


def _growth(known: Kind, kind: Kind) -> float:
    return max(1.0, *(new / old for new, old in zip(kind.work, known.work, strict=True)))
