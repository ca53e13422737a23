"""A whole search, as its process runs it."""

from collections.abc import Callable
from typing import Any

import pytest
from distserve_testing.deployments import auto_resource

from distserve_operator.api.parsing import parse
from distserve_operator.api.targets import Targets
from distserve_operator.observed.nodes import Survey
from distserve_operator.observed.recorded import recorded_plan
from distserve_operator.reconciling.finding import Assignment, find

pytestmark = pytest.mark.timeout(600)  # the first one of a machine compiles

Schema = Callable[[dict[str, Any]], None]


def answer(free: tuple[int, ...] = (8,), **options: Any) -> dict[str, Any]:
    wanted = parse(auto_resource(**options))
    assert isinstance(wanted.placement, Targets)
    return find(Assignment(wanted, wanted.placement, Survey(free)))


def load(rate: str) -> dict[str, Any]:
    found: dict[str, Any] = auto_resource(rate=rate)["spec"]["workload"]
    return found


def test_a_fleet_that_holds_the_targets_is_found_and_always_the_same(check_schema: Schema) -> None:
    found = answer()
    assert found["outcome"] == "Feasible"
    assert found["devices"] <= 4
    assert float(found["goodput"]) >= 2
    assert found["attainmentPercent"] >= 90
    record = {"inventory": "1x8", "planner": "1", "inputsDigest": "d", "observedGeneration": 1}
    check_schema(auto_resource() | {"status": {"plan": found | record}})
    changing = {"searchMilliseconds"}
    again = answer()
    assert {k: v for k, v in found.items() if k not in changing} == {
        k: v for k, v in again.items() if k not in changing
    }


def test_a_light_load_takes_one_colocated_instance_and_the_size_of_its_steps_is_told() -> None:
    found = answer(workload=load("0.2"))
    assert found["outcome"] == "Feasible"
    assert found["devices"] == 1
    assert {"maxBatchTokens", "chunkTokens"} & set(found["colocated"])
    read = recorded_plan({"plan": found | {"inventory": "1x8", "planner": "1", "inputsDigest": "d"}})
    assert read is not None
    assert str(read.placement) == read.shape


def test_no_instance_is_cut_over_nodes() -> None:
    """B35: every one is a pod."""
    found = answer(free=(2, 2, 2, 2), max_devices=8, workload=load("8"))
    shapes = [found[role] for role in ("prefill", "decode", "colocated") if role in found]
    assert shapes
    assert all(shape["tp"] * shape["pp"] <= 2 for shape in shapes)


def test_a_rate_beyond_the_devices_is_answered_with_the_one_that_they_hold() -> None:
    """B40."""
    found = answer(workload=load("500"))
    assert found["outcome"] == "RateUnreachable"
    assert 2 < float(found["goodput"]) < 500
    assert any("500 req/s were asked for" in reason for reason in found["reasons"])


def test_targets_beyond_the_device_are_answered_with_what_it_reaches() -> None:
    """B40."""
    found = answer(slo={"ttftMilliseconds": 1, "tpotMilliseconds": 1, "attainmentPercent": 90})
    assert found["outcome"] == "SLOUnreachable"
    assert float(found["p90"]["ttftMilliseconds"]) > 1
    assert found["binding"]


@pytest.mark.parametrize(
    ("options", "outcome", "text"),
    [
        ({"free": ()}, "NotEnoughDevices", "a fleet takes at least 1 CPU device, 0 are free on the nodes"),
        ({"free": (), "mode": "Plan"}, "NotEnoughDevices", "a fleet takes at least 1 CPU device"),
        ({"cluster": {"memoryPerDevice": "200Mi"}}, "DoesNotFit", "Memory: no instance fits 4 free devices on 1 node"),
        ({"model": {"uri": "hf://a/SmolLM2-135M", "maxModelLength": 100}}, "WorkloadInvalid", "60 + 60 tokens"),
    ],
)
def test_what_needs_no_search_is_answered_with_figures(options: dict[str, Any], outcome: str, text: str) -> None:
    """B35."""
    found = answer(**options)
    assert found["outcome"] == outcome
    assert text in found["binding"]
    assert "shape" not in found
