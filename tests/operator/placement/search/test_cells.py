"""Large fleets are cut into cells, and neither the cut nor the rate asked for changes what devices can hold."""

import math
from dataclasses import replace
from typing import Any

import pytest
from distserve_testing.questions import question
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.device import Inventory
from distserve_operator.placement.question import Affinity, FiniteWindow
from distserve_operator.placement.search import fewest
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.cells import SAMPLED, SEARCHED, all_in_cells, cells_of, parts, per_device
from distserve_operator.placement.search.copying import with_most
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.spaces import fits
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.arrivals import Gamma
from distserve_operator.placement.workload.lengths import Fixed, LogNormal
from distserve_operator.placement.workload.workload import Workload

SHORT = Fixed(1500, 1)
BURSTS: dict[str, Any] = {"model": "llama-3.1-8b", "slo": Slo(0.6, 0.06), "affinity": Affinity.AUTO}
LONG_ANSWERS: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "slo": Slo(0.2, 0.025),
    "lengths": LogNormal(60, 2.0, 600, 1.5),
}
WIDE: dict[str, Any] = {"model": "llama-3.1-405b", "slo": Slo(5.0, 0.15), "lengths": LogNormal(760, 0.7, 190, 1.2)}
CLUSTER: dict[str, Any] = {"gpu": "H100-80GB", "per_node": 8, "affinity": Affinity.AUTO}
SLOW_READING: dict[str, Any] = {  # of prompts: what it takes is a multiple of what the bounds call for
    "model": "llama-3.1-70b",
    "gpu": "L40S",
    "per_node": 8,
    "slo": Slo(2.0, 0.1),
    "lengths": LogNormal(2000, 1.0, 400, 1.0),
    "only": "colocated",
}
MANY: dict[str, Any] = {"nodes": 1250, "per_node": 8, "lengths": Fixed(512, 8)}


@pytest.mark.parametrize(
    ("free", "cells", "exact", "number", "part"),
    [
        ((8,) * 10, 1, True, 1, (8,) * 10),
        ((8,) * 10, 4, True, 4, (8, 8)),
        ((8,) * 10, 4, False, 3, (8, 8, 8)),
        ((8,) * 3, 2, False, 1, (8, 8, 8)),
        ((8, 8, 8, 8, 1, 1), 4, False, 4, (8,)),
        ((8, 8, 4, 4), 2, True, 2, (8, 4)),
        ((8, 8, 1), 2, True, 2, (8,)),
        ((8, 8, 1), 3, True, 2, (8,)),
        ((8,), 3, True, 2, (4,)),
        ((1000, 0, 1000), 20, True, 20, (100,)),
        ((8, 8), 3, False, 2, (8,)),
        ((1000, 500), 46, False, 30, (50,)),
        ((997,), 46, False, 32, (31,)),
    ],
)
def test_parts_are_equal_and_leave_the_fewest_devices_out(
    free: tuple[int, ...], cells: int, exact: bool, number: int, part: tuple[int, ...]
) -> None:
    assert parts(Inventory(free, sum(free)), cells, exact) == (number, Inventory(part, sum(free) // number))


@given(free=st.lists(st.integers(1, 40), min_size=1, max_size=6), cells=st.integers(1, 30), exact=st.booleans())
def test_a_link_of_a_node_is_that_of_one_part(free: list[int], cells: int, exact: bool) -> None:
    number, part = parts(Inventory(tuple(free), sum(free)), cells, exact)
    assert number <= cells
    assert number * len(part.free) <= len(free) or len(part.free) == 1
    assert sum(one // part.free[-1] for one in free) >= number * len(part.free)


def test_wide_instances_are_pooled_where_a_large_cluster_has_room_for_many() -> None:
    few, many = (plan(question(**SLOW_READING, nodes=nodes)).chosen for nodes in (4, 16))
    assert few is not None
    assert many is not None
    assert many.goodput / many.placement.devices > 1.1 * few.goodput / few.placement.devices


@pytest.mark.parametrize("most", [SAMPLED, SEARCHED])
def test_how_all_devices_are_cut_does_not_follow_the_rate_asked_for(most: int) -> None:
    asked = question(**MANY)
    cut = {rate: all_in_cells(replace(asked, rate=rate), most) for rate in (1.0, 100.0, 10_000.0, 1e6)}
    assert len({(cells, cell.inventory) for cells, cell in cut.values()}) == 1
    assert all(cell.rate == rate / cells for rate, (cells, cell) in cut.items())


def test_pools_are_as_large_as_a_rate_needs() -> None:
    """Short outputs: few requests are in flight, however many instances read prompts."""
    wide: dict[str, Any] = {"slo": Slo(0.4, 0.1), "nodes": 64, "per_node": 8, "affinity": Affinity.AUTO}
    found = plan(question(**wide, lengths=SHORT, rate=200.0))
    assert found.chosen is not None
    assert found.feasible
    assert found.chosen.placement.devices <= 36
    assert cells_of(question(**wide, lengths=SHORT, rate=2000.0)) > 1


def test_the_most_that_wide_instances_hold_is_looked_for_in_large_cells() -> None:
    asked = question(**SLOW_READING, nodes=16)
    whole, most = plan(asked).chosen, plan(replace(asked, rate=50.0)).chosen
    assert whole is not None
    assert most is not None
    assert most.goodput >= whole.goodput


def test_of_large_cells_and_small_ones_those_are_taken_that_hold_a_rate_with_fewer_devices() -> None:
    asked = question(**SLOW_READING, nodes=16, rate=1.0)
    found = with_most(asked, path_of(asked))
    assert found.feasible
    assert found.chosen is not None
    assert found.chosen.placement.devices <= SAMPLED


def test_what_devices_hold_at_best_does_not_follow_the_rate_asked_for() -> None:
    found = [plan(question(**MANY, rate=rate)) for rate in (1e6, 1e9)]
    for one in found:
        assert not one.feasible
        assert one.chosen is not None
        assert found[0].chosen is not None
        assert one.chosen.goodput == found[0].chosen.goodput
        assert fits(one.chosen.placement, question(**MANY).inventory)


def test_no_rate_above_the_bound_is_searched_for() -> None:
    asked = question(per_node=2, lengths=Fixed(512, 8))
    most = plan(replace(asked, rate=1e4))
    assert most.chosen is not None
    assert 0 < most.chosen.goodput <= 2 * per_device(asked)
    assert per_device(replace(asked, window=FiniteWindow())) == float("inf")


def test_a_burst_that_many_devices_hold_at_any_rate_has_an_answer() -> None:
    burst = question(nodes=64, per_node=8, lengths=Fixed(512, 8), rate=1e5, window=FiniteWindow())
    assert plan(burst).feasible


def test_a_burst_of_requests_with_one_token_has_an_answer() -> None:
    """No bound says what it takes, and none of them decodes."""
    assert plan(question(per_node=1, lengths=Fixed(512, 1), window=FiniteWindow(20))).feasible


@pytest.mark.parametrize("share", [1.0, 0.97, 0.95, 0.9])
def test_what_devices_hold_at_best_is_held_when_it_is_asked_for(share: float) -> None:
    asked = question(**BURSTS)
    bursts = replace(asked, workload=Workload(LogNormal(760, 0.7, 190, 1.2), Gamma(4.0), asked.model.positions))
    most = plan(replace(bursts, rate=1e4))
    assert most.chosen is not None
    assert not most.feasible
    assert plan(replace(bursts, rate=share * most.chosen.goodput)).feasible


def devices_for(rate: float, nodes: int, load: dict[str, Any]) -> int:
    asked = question(**CLUSTER, **load, nodes=nodes, rate=rate)
    found = plan(asked)
    assert found.feasible
    assert found.chosen is not None
    assert found.chosen.goodput >= rate
    assert fits(found.chosen.placement, asked.inventory)
    return found.chosen.placement.devices


@pytest.mark.parametrize(("load", "rate", "few"), [(LONG_ANSWERS, 20_000.0, 182), (WIDE, 150.0, 42)])
def test_more_nodes_never_need_more_devices_for_a_rate(load: dict[str, Any], rate: float, few: int) -> None:
    """B37, where fleets are cut into cells."""
    assert devices_for(rate, 1250, load) <= devices_for(rate, few, load)


def test_a_rate_takes_no_more_devices_than_copies_of_the_best_per_device() -> None:
    best = plan(question(**CLUSTER, **WIDE, nodes=1250)).chosen
    assert best is not None
    assert devices_for(1000.0, 1250, WIDE) <= math.ceil(1000 / best.goodput) * best.placement.devices


def test_a_fleet_that_holds_a_rate_between_two_steps_of_the_grid_has_at_least_this_goodput() -> None:
    per_step = 1.01
    alone = plan(question(per_node=2)).chosen
    assert alone is not None
    for share in (per_step**-0.5, per_step**-0.25, per_step**0.25):
        found = plan(question(per_node=2, rate=share * alone.goodput))
        if found.feasible:
            assert found.chosen is not None
            assert found.chosen.goodput >= share * alone.goodput
            assert found.chosen.interval[1] >= found.chosen.goodput


def test_a_fleet_of_equal_parts_does_not_claim_that_none_has_fewer_devices() -> None:
    found = plan(question(**MANY, rate=20_000.0))
    assert found.feasible
    assert found.served is not None
    assert found.served.rate == 20_000.0
    assert "equal parts" in found.reasons[0]
    assert not any("no fleet with fewer" in reason for reason in found.reasons)


def test_a_rate_that_takes_far_more_than_the_bounds_call_for_is_planned_in_pooled_parts() -> None:
    found = plan(question(**SLOW_READING, nodes=1250, rate=200.0))
    assert found.feasible
    assert found.chosen is not None
    assert found.chosen.per_device > 0.052  # 0.046 on four instances


def test_a_cluster_that_holds_a_rate_with_its_last_devices_has_an_answer() -> None:
    load: dict[str, Any] = {"slo": Slo(0.07, 0.018), "lengths": LogNormal(200, 0.6, 120, 0.6), "rate": 60.0}
    found = plan(question(**load, nodes=11, per_node=4, only="colocated"))
    assert found.feasible
    assert found.chosen is not None
    assert found.chosen.placement.devices == 44


def test_no_more_than_so_many_candidates_are_looked_at_for_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewest, "MOST_LOOKED", 200)
    asked = question(**SLOW_READING | {"only": "disaggregated"}, nodes=1250, rate=30.0)
    evaluator = Evaluator(asked, path_of(asked))
    assert not list(fewest.by_devices(evaluator, 30.0, 30.0, lambda _: True))
    assert evaluator.looked == 200
