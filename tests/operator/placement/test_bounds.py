"""Rates above a bound are never held, so nothing that a bound rules out could have been chosen."""

from collections.abc import Iterator

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.bounds import demand_of
from distserve_operator.placement.question import Question, Steady
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.spaces import placements
from distserve_operator.placement.shape import Placement
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.arrivals import Arrivals, Gamma, Poisson, Regular
from distserve_operator.placement.workload.lengths import Fixed, Lengths, LogNormal
from distserve_operator.placement.workload.workload import Workload

LENGTHS: list[Lengths] = [Fixed(1700, 30), Fixed(512, 1), Fixed(512, 2), Fixed(200, 400), LogNormal(300, 1.0, 100, 1.0)]
SLOS = [Slo(1.0, 1.0), Slo(1.0, 0.05)]


def asked(lengths: Lengths, slo: Slo) -> Question:
    return question(per_node=3, slo=slo, lengths=lengths, window=Steady(8000))


def some(evaluator: Evaluator) -> Iterator[tuple[Placement, float]]:
    for placement in list(placements(evaluator.question))[::5]:
        yield placement, evaluator.upper(placement)


@pytest.mark.parametrize("slo", SLOS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_no_rate_above_the_bound_is_held(lengths: Lengths, slo: Slo) -> None:
    evaluator = Evaluator(asked(lengths, slo), asked(lengths, slo).workload.sample(0, 40_000))
    for placement, upper in some(evaluator):
        assert upper > 0
        assert evaluator.watch(placement, 1.1 * upper).missed > 1 - slo.attainment


def settled(lengths: Lengths, arrivals: Arrivals) -> float:
    """Of a server that takes the same time for every token."""
    demand = demand_of(Workload(lengths, arrivals, longest=1 << 20).sample(0, 40_000), 0.9)
    return demand.settled(1.0, 0.0, 0.0, 1.0)


def test_the_more_requests_vary_the_farther_from_its_bound_a_fleet_has_to_stay() -> None:
    assert settled(Fixed(512, 64), Regular()) == 1
    rising = [
        settled(LogNormal(60, 2.0, 600, 1.5), Gamma(3.0)),
        settled(LogNormal(60, 2.0, 600, 1.5), Poisson()),
        settled(LogNormal(300, 1.0, 300, 1.0), Poisson()),
        settled(Fixed(512, 64), Poisson()),
    ]
    assert rising == sorted(rising)
    assert 0.95 < rising[0] < 0.96
    assert 0.98 < rising[-1] < 1
