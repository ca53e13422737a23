"""What is said of a plan beside other fleets."""

from typing import Any

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.question import Steady
from distserve_operator.placement.search.answering import plan


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({}, "no disaggregated fleet was found to hold the targets on up to 4 devices"),
        ({"rate": 1.0}, "no disaggregated fleet was found to hold 1 req/s on up to 4 devices, 4 times the plan's"),
        ({"rate": 1e3}, "no disaggregated fleet was found to hold the targets on up to 4 devices"),
    ],
    ids=["per device", "for a rate", "for too high a rate"],
)
def test_where_one_kind_is_missing_it_is_said_how_far_it_was_looked_for(case: dict[str, Any], said: str) -> None:
    """KV stays inside nodes, which have one device each."""
    found = plan(question(nodes=4, per_node=1, window=Steady(1000), **case))
    assert found.best_colocated is not None
    assert found.best_disaggregated is None
    assert found.reasons[-1] == said


def test_a_kind_that_was_left_out_is_not_said_to_be_missing() -> None:
    found = plan(question(nodes=4, per_node=1, only="colocated", window=Steady(1000)))
    assert found.feasible
    assert len(found.reasons) == 1
