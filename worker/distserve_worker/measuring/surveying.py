"""Measures as many batches as a budget of seconds allows, all of them several times in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from distserve_worker.measuring.batches import Batch, foreseen

FEWEST: Final = 4  # batches: one more than a law has coefficients
REPETITIONS: Final = 3  # of each batch that is more than those; its first run warms up and tells what it costs
MOST_REPETITIONS: Final = 25


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one step, and of the same step without a model."""

    seconds: float
    host_seconds: float
    waited: float  # share of `seconds` in which its thread did not run


@dataclass(slots=True)
class Survey:
    """One phase. Repetitions of a batch lie apart in time: a noisy neighbour spoils one of them, not all."""

    visit: Callable[[Batch], Sample]
    clock: Callable[[], float]
    watch: Callable[[Batch], None]  # told of each batch before its visit
    costs: dict[Batch, float] = field(default_factory=dict)  # seconds of a visit, preparations included
    samples: dict[Batch, list[Sample]] = field(default_factory=dict)

    def run(self, batches: Sequence[Batch], seconds: float) -> dict[Batch, list[Sample]]:
        """Samples of the batches that can be repeated often enough in `seconds`; none if these are fewer than `FEWEST`.

        `batches` rise in work. The first one is run in any case: `costs` tell how long it took.
        """
        end = self.clock() + seconds
        self.visit(batches[0])  # whatever happens only once in a process
        self._visit(batches[0])
        for batch in batches[1:]:
            if self.clock() + self._needed(foreseen(batch, self.costs)) <= end:
                self._visit(batch)
        for number in range(MOST_REPETITIONS if len(self.costs) >= FEWEST else 0):
            for batch in self.costs:
                # Every batch gets one sample, however much slower the machine has become.
                if number == 0 or self.clock() + self.costs[batch] <= end:
                    self.samples.setdefault(batch, []).append(self._visit(batch))
        return self.samples

    def _needed(self, cost: float) -> float:
        """Seconds for one more batch that takes `cost`, and for the repetitions of all that there are then."""
        repetitions = 1 if len(self.costs) < FEWEST else REPETITIONS
        return cost + repetitions * (sum(self.costs.values()) + cost)

    def _visit(self, batch: Batch) -> Sample:
        self.watch(batch)
        start = self.clock()
        sample = self.visit(batch)
        self.costs[batch] = self.clock() - start
        return sample
