"""Rounds of a search whose own path and fresh ones see different things."""

from dataclasses import replace

from distserve_testing.questions import question

from distserve_operator.placement.question import Steady
from distserve_operator.placement.rates import PER_DEVICE
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.searching import best, search_of
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import Fixed, LogNormal


def test_where_instances_hold_nothing_on_fresh_paths_a_search_goes_on_with_others() -> None:
    """With a stricter target for fresh paths decode instances of one device are too slow, in whatever number."""
    asked = question(per_node=8, slo=Slo(0.25, 0.03), lengths=Fixed(256, 64), only="disaggregated", window=Steady(500))
    search, strict = search_of(asked, path_of(asked), PER_DEVICE), replace(asked, slo=Slo(0.25, 0.016))
    search.verifier = Verifier.of(strict, Evaluator(strict, path_of(strict)))
    found = best(search)
    assert found is not None
    assert found.level is not None


def test_a_fleet_that_holds_a_rate_on_fresh_paths_alone_has_the_fewest_devices() -> None:
    """The path of the search is heavier than others, so there it holds 1 % less."""
    few = plan(
        question(
            "qwen2.5-7b",
            gpu="L40S",
            nodes=2,
            per_node=3,
            slo=Slo(0.1, 0.02),
            lengths=LogNormal(700, 0.5, 100, 1.0),
            rate=3.342,
        )
    )
    assert few.feasible
    assert few.chosen is not None
    assert few.chosen.placement.devices == 3
