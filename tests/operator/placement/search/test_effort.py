"""A search simulates no more than it has to."""

from collections import Counter
from typing import Any, NamedTuple

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.question import Affinity, Question
from distserve_operator.placement.search import evaluating, fewest
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.simulation.running import Fleet, Outcome, simulate
from distserve_operator.placement.simulation.state import Targets
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.choosing import choose_lengths
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
    """All runs of the searches of a test, in their order."""
    seen: list[tuple[Run, Outcome]] = []

    def noted(fleet: Fleet, path: Path, rate: float, targets: Targets) -> Outcome:
        outcome = simulate(fleet, path, rate, targets)
        seen.append((Run(repr(fleet), path.arrivals[0], len(path), rate, targets._replace(failures=0)), outcome))
        return outcome

    monkeypatch.setattr(evaluating, "simulate", noted)
    return seen


def test_no_run_that_went_to_its_end_is_repeated(runs: list[tuple[Run, Outcome]]) -> None:
    assert plan(asked()).feasible
    whole = Counter(run for run, outcome in runs if not outcome.failed)
    assert whole.most_common(1)[0][1] == 1


def test_a_small_question_takes_about_a_million_simulated_requests(runs: list[tuple[Run, Outcome]]) -> None:
    assert plan(asked()).feasible
    assert sum(run.requests for run, _ in runs) < 1_200_000


def test_fleets_whose_bounds_do_not_reach_a_rate_are_not_simulated(runs: list[tuple[Run, Outcome]]) -> None:
    """Where few may fail, many that do not reach it hold almost as much."""
    found = plan(
        question(
            "qwen2.5-7b",
            gpu="L40S",
            nodes=32,
            per_node=8,
            slo=Slo(0.8, 0.028, 0.99),
            lengths=Fixed(2000, 400),
            affinity=Affinity.AUTO,
            rate=612.0,
        )
    )
    assert found.feasible
    assert sum(run.requests for run, _ in runs) < 8_000_000  # 75 million if they are


FAR_FROM_ITS_BOUNDS: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "gpu": "L40S",
    "per_node": 8,
    "slo": Slo(2.0, 0.06),
    "lengths": Fixed(512, 64),
    "affinity": Affinity.AUTO,
    "network_bytes_per_second": 25e9 / 8,
}


def test_where_large_counts_fail_smaller_ones_are_not_simulated(
    runs: list[tuple[Run, Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = question(**FAR_FROM_ITS_BOUNDS, nodes=250, rate=300.0)
    found = plan(load)
    few = len(runs)
    runs.clear()
    monkeypatch.setattr(fewest, "STRIDE", 0.0)
    every = plan(load)
    assert found.feasible
    assert found.chosen == every.chosen
    assert few < 0.8 * len(runs)


def test_no_part_of_a_rate_is_searched_that_all_devices_have_no_room_for(runs: list[tuple[Run, Outcome]]) -> None:
    load = FAR_FROM_ITS_BOUNDS | {"slo": Slo(4.0, 0.1), "lengths": choose_lengths("sharegpt")}
    assert not plan(question(**load, nodes=1250, rate=8000.0)).feasible
    assert len(runs) < 9_000  # 12 thousand if one is
