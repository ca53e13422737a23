"""A budget of seconds decides what is measured and how often; steps take what a law says, on a clock of its own."""

import pytest

from distserve_worker.measuring.batches import Batch, Bounds, decode_batches, prefill_batches
from distserve_worker.measuring.surveying import FEWEST, MOST_REPETITIONS, REPETITIONS, Sample, Survey

BOUNDS = Bounds(longest=8192, blocks=100_000, block_tokens=16)
BATCHES = prefill_batches(BOUNDS)


class Machine:
    """Steps of so many seconds a token; `slower` from the visit of that number on, tenfold."""

    def __init__(self, per_token: float, slower: int | None = None) -> None:
        self.now = 0.0
        self.visits: list[Batch] = []
        self.watched: list[Batch] = []
        self._per_token = per_token
        self._slower = slower

    def visit(self, batch: Batch) -> Sample:
        self.visits.append(batch)
        slow = self._slower is not None and len(self.visits) > self._slower
        seconds = (0.01 + self._per_token * batch.tokens) * (10 if slow else 1)
        self.now += seconds
        return Sample(seconds, 0.001, 0.0)

    def survey(self) -> "Survey[Batch, Sample]":
        return Survey(self.visit, lambda: self.now, watch=self.watched.append)


@pytest.mark.parametrize("seconds", [2.0, 10.0, 60.0, 600.0])
def test_the_budget_is_kept(seconds: float) -> None:
    machine = Machine(0.002)
    samples = machine.survey().run(BATCHES, seconds)
    assert machine.now <= seconds
    assert len(samples) >= FEWEST
    assert all(len(taken) >= 1 for taken in samples.values())
    if len(samples) > FEWEST:
        assert all(len(taken) >= REPETITIONS for taken in samples.values())


def test_whoever_watches_is_told_of_all_but_the_first_visit() -> None:
    machine = Machine(0.002)
    machine.survey().run(BATCHES, 10)
    assert machine.watched == machine.visits[1:]


def test_more_seconds_measure_more_and_longer_steps() -> None:
    counts = [len(Machine(0.002).survey().run(BATCHES, seconds)) for seconds in (2, 10, 60, 600)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == len(BATCHES)


def test_a_fast_machine_does_not_use_up_the_budget() -> None:
    machine = Machine(1e-9)
    samples = machine.survey().run(BATCHES, 3600)
    assert {len(taken) for taken in samples.values()} == {MOST_REPETITIONS}
    assert machine.now < 3600


def test_repetitions_of_a_batch_lie_apart() -> None:
    machine = Machine(0.002)
    samples = machine.survey().run(BATCHES, 20)
    warming = 1 + len(samples)
    assert machine.visits[warming : warming + REPETITIONS * len(samples)] == REPETITIONS * list(samples)


def test_each_batch_has_a_sample_even_when_the_machine_becomes_slow() -> None:
    machine = Machine(0.002, slower=12)
    samples = machine.survey().run(BATCHES, 10)
    assert samples
    assert all(taken for taken in samples.values())


def test_a_machine_that_is_too_slow_for_a_law_gives_too_few_batches() -> None:
    machine = Machine(1.0)
    assert len(machine.survey().run(BATCHES, 10)) < FEWEST


def test_no_step_is_begun_that_could_take_longer_than_the_budget() -> None:
    machine = Machine(0.01)
    machine.survey().run(decode_batches(BOUNDS), 5)
    assert max(batch.tokens for batch in machine.visits) * 0.01 < 5
