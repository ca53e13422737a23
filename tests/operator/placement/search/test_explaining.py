"""What is said of a plan beside other fleets."""

from dataclasses import replace
from typing import Any

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.answer import Candidate
from distserve_operator.placement.question import Steady
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.explaining import compare
from distserve_operator.placement.search.racing import simplicity
from distserve_operator.placement.shape import Disaggregated, Pool, Shape


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


INSIDE = Disaggregated(Pool(Shape(1, 1), 6), Pool(Shape(2, 1), 3), units=3, segments=1)
ANYWHERE = replace(INSIDE, units=1, segments=None)
TOGETHER = replace(INSIDE, units=1)


def test_of_the_same_instances_those_whose_kv_stays_inside_nodes_win_a_tie() -> None:
    assert sorted([ANYWHERE, INSIDE, TOGETHER], key=simplicity) == [TOGETHER, INSIDE, ANYWHERE]


@pytest.mark.parametrize(
    ("chosen", "other", "goodput", "lost"),
    [
        (
            INSIDE,
            ANYWHERE,
            30.0,
            (
                "the same instances, but its KV goes to any node: "
                "a tie: it is simpler if KV stays inside nodes, in 3 parts of 1 segment"
            ),
        ),
        (
            ANYWHERE,
            TOGETHER,
            27.0,
            (
                "the same instances, but its KV stays inside nodes, in 1 part of 1 segment: "
                "its goodput per device is 10.0 % lower"
            ),
        ),
    ],
)
def test_a_runner_up_with_the_same_instances_is_told_by_where_its_kv_goes(
    chosen: Disaggregated, other: Disaggregated, goodput: float, lost: str
) -> None:
    best, second = Candidate(chosen, 30.0, (29.0, 31.0)), Candidate(other, goodput, (26.0, 31.0))
    assert compare(question(nodes=4), best, [second]).runner_up_lost == lost
