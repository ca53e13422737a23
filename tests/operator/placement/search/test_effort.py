"""A search simulates no more than it has to."""

from collections import Counter
from typing import NamedTuple

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.question import Question
from distserve_operator.placement.search import evaluating
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.simulation.running import Fleet, Outcome, simulate
from distserve_operator.placement.simulation.state import Targets
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import Fixed
from distserve_operator.placement.workload.path import Path


class Run(NamedTuple):
    """What makes two runs the same one."""

    fleet: str
    path: int
    requests: int
    rate: float
    targets: Targets


def asked() -> Question:
    return question("llama-3.1-8b", gpu="H100-80GB", per_node=2, slo=Slo(1.0, 0.02), lengths=Fixed(512, 64))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Run, Outcome]]:
    """All runs of the question's search, in their order."""
    seen: list[tuple[Run, Outcome]] = []

    def noted(fleet: Fleet, path: Path, rate: float, targets: Targets) -> Outcome:
        outcome = simulate(fleet, path, rate, targets)
        seen.append((Run(repr(fleet), path.arrivals[0], len(path), rate, targets._replace(failures=0)), outcome))
        return outcome

    monkeypatch.setattr(evaluating, "simulate", noted)
    assert plan(asked()).feasible
    return seen


def test_no_run_that_went_to_its_end_is_repeated(runs: list[tuple[Run, Outcome]]) -> None:
    whole = Counter(run for run, outcome in runs if not outcome.failed)
    assert whole.most_common(1)[0][1] == 1


def test_a_small_question_takes_about_a_million_simulated_requests(runs: list[tuple[Run, Outcome]]) -> None:
    assert sum(run.requests for run, _ in runs) < 1_200_000
