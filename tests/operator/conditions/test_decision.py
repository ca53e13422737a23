"""Which shape a pass works on, and whether it may change anything."""

from typing import Any

import pytest
from distserve_testing.deployments import auto_resource, resource

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.parsing import parse
from distserve_operator.api.shape import Colocated, Disaggregated, Shape
from distserve_operator.conditions.condition import State
from distserve_operator.conditions.decision import NOT_PLACED, PLAN_ONLY, Decision, decide
from distserve_operator.conditions.memory import memory_after, memory_with_plan
from distserve_operator.conditions.overall import verdicts_without_children
from distserve_operator.observed.recorded import RecordedPlan, Serving, recorded_plan, recorded_serving
from distserve_operator.observed.search import Answered, NoNode, Search, SearchFailed, Searching, Unanswerable

ONE = {"tp": 1, "pp": 1, "replicas": 1}
FOUND: dict[str, Any] = {
    "outcome": "Feasible",
    "shape": "2xTP1 -> 1xTP1",
    "devices": 3,
    "prefill": ONE | {"replicas": 2},
    "decode": ONE,
    "goodput": "4.2",
    "goodputPerDevice": "1.4",
    "attainmentPercent": 94,
    "binding": "TTFT: above 4.2 req/s too many requests miss 2000 ms",
    "reasons": ["no fleet with fewer devices holds 2 req/s"],
    "inventory": "1x8",
    "planner": "1",
    "inputsDigest": "d",
}
OLD = Serving(Disaggregated(Shape(1, 1, 1), Shape(1, 1, 1)), "fleet")
PENDING: list[Search] = [
    Searching(),
    SearchFailed("the search has failed: its process ended by SIGKILL", 2.0),
    Unanswerable("UnknownModel", "no such model"),
]


def plan(**changes: Any) -> RecordedPlan:
    found = recorded_plan({"plan": {name: value for name, value in (FOUND | changes).items() if value is not None}})
    assert found is not None
    return found


def wanted(**options: Any) -> Wanted:
    return parse(auto_resource(**options))


def shape_of(decision: Decision) -> str:
    return "" if decision.deployment is None else str(decision.deployment.placement)


def test_a_feasible_plan_is_made() -> None:
    decision = decide(wanted(), Answered(plan()), None, "fleet")
    assert (decision.verdict.state, decision.verdict.reason) == (State.TRUE, "Planned")
    assert shape_of(decision) == "2xTP1 -> 1xTP1"
    assert decision.untouched is None
    for text in ("3 of at most 4 CPU devices", "goodput 4.2 req/s, 1.4 per device", "94 %", "an instance in one pod"):
        assert text in decision.verdict.message


def test_in_mode_plan_nothing_is_touched_and_nothing_is_under_way() -> None:
    decision = decide(wanted(mode="Plan"), Answered(plan(shape="1xTP8 colocated", prefill=None)), None, "fleet")
    assert (decision.verdict.reason, decision.untouched, decision.deployment) == ("Planned", PLAN_ONLY, None)
    assert "an instance in one pod" not in decision.verdict.message, "all shapes were searched"
    conditions = {
        str(k): (str(v.state), v.reason) for k, v in verdicts_without_children(decision.verdict, PLAN_ONLY).items()
    }
    assert conditions["Ready"] == ("False", "PlanOnly")
    assert conditions["Reconciling"] == ("False", "Settled")
    assert conditions["Stalled"] == ("False", "NoObstacle")


def test_a_written_shape_in_mode_plan_is_only_shown() -> None:
    manual = parse(resource(mode="Plan"))
    decision = decide(manual, None, None, "fleet")
    assert (decision.verdict.reason, decision.untouched) == ("Manual", PLAN_ONLY)
    assert memory_after({}, manual, None, decision, "fleet") == {"plan": {"shape": "1xTP1 -> 1xTP1", "devices": 2}}


def test_a_written_shape_without_nodes_is_not_made_and_what_serves_is_kept_up() -> None:
    """B35: it is looked at again, as nodes may come."""
    manual = parse(resource(colocated={"tp": 8}, max_devices=8))
    obstacle = NoNode("an instance of placement.colocated takes 8 devices")
    fresh = decide(manual, obstacle, None, "fleet")
    assert (fresh.verdict.reason, fresh.verdict.permanent, fresh.deployment) == ("NotEnoughDevices", False, None)
    kept = decide(manual, obstacle, OLD, "fleet")
    assert (shape_of(kept), kept.untouched) == ("1xTP1 -> 1xTP1", None)
    assert "takes 8 devices; 1xTP1 -> 1xTP1 keeps serving" in kept.verdict.message
    assert "plan" not in memory_after({"plan": {"shape": "x", "devices": 2}}, manual, obstacle, kept, "fleet")
    elsewhere = decide(manual, obstacle, OLD, "another model")
    assert elsewhere.untouched is NOT_PLACED


@pytest.mark.parametrize("search", [*PENDING, Answered(plan(outcome="RateUnreachable"))])
def test_without_an_answer_nothing_is_made(search: Search) -> None:
    """B35, B40."""
    decision = decide(wanted(), search, None, "fleet")
    assert not decision.verdict.holds
    assert decision.verdict.reason
    assert decision.deployment is None
    assert decision.untouched is NOT_PLACED


@pytest.mark.parametrize("search", [*PENDING, Answered(plan(outcome="SLOUnreachable"))])
def test_without_an_answer_what_serves_is_kept_up(search: Search) -> None:
    decision = decide(wanted(), search, OLD, "fleet")
    assert shape_of(decision) == "1xTP1 -> 1xTP1"
    assert decision.untouched is None
    assert "1xTP1 -> 1xTP1 keeps serving" in decision.verdict.message
    assert not decision.verdict.holds


@pytest.mark.parametrize(
    ("options", "fleet"), [({}, "another model"), ({"max_devices": 1}, "fleet"), ({"mode": "Plan"}, "fleet")]
)
def test_what_serves_is_left_alone_when_it_is_of_another_spec(options: dict[str, Any], fleet: str) -> None:
    decision = decide(wanted(**options), Searching(), OLD, fleet)
    assert shape_of(decision) == "1xTP1 -> 1xTP1"
    assert decision.untouched is not None


@pytest.mark.parametrize(
    ("changes", "reason", "named"),
    [
        ({"segments": 2}, "UnsupportedShape", "2xTP1 -> 1xTP1 was found, which this version cannot run"),
        ({"prefill": ONE | {"tp": 2}}, "UnsupportedShape", "placement.prefill: tp is 2, but the 9 heads"),
        ({"prefill": ONE | {"replicas": 9}}, "TooManyDevices", "takes 10 devices but cluster.maxDevices is 4"),
    ],
)
def test_a_recorded_shape_that_cannot_run_is_not_made(changes: dict[str, Any], reason: str, named: str) -> None:
    """Of a newer version, after this one was rolled back to."""
    decision = decide(wanted(), Answered(plan(**changes)), None, "fleet")
    assert (decision.verdict.state, decision.verdict.reason, decision.untouched) == (State.FALSE, reason, NOT_PLACED)
    assert named in decision.verdict.message


@pytest.mark.parametrize(
    ("outcome", "inventory", "permanent"),
    [
        ("RateUnreachable", "1x8", True),
        ("RateUnreachable", "1x2 + 1x1", False),
        ("NotEnoughDevices", "none", False),
        ("WorkloadInvalid", "none", True),
        ("SLOUnreachable", "1x4 (assumed)", True),
    ],
)
def test_an_infeasible_plan_waits_for_devices_only_if_they_could_help(
    outcome: str, inventory: str, permanent: bool
) -> None:
    decision = decide(wanted(), Answered(plan(outcome=outcome, inventory=inventory)), None, "fleet")
    assert (decision.verdict.reason, decision.verdict.permanent) == (outcome, permanent)
    assert "the best is 2xTP1 -> 1xTP1: goodput 4.2 req/s" in decision.verdict.message
    assert FOUND["binding"] in decision.verdict.message


def test_the_shape_that_is_made_is_remembered_with_its_answer() -> None:
    """B24: after a crash between the two nothing would explain the pods."""
    spec = wanted()
    decision = decide(spec, Answered(plan()), None, "fleet")
    memory = memory_with_plan({"servedName": "x"}, FOUND, decision, "fleet")
    assert memory["plan"] == FOUND
    assert recorded_serving(memory) == Serving(Disaggregated(Shape(1, 1, 2), Shape(1, 1, 1)), "fleet")
    assert memory_after(memory, spec, Answered(plan()), decision, "fleet") == memory | {
        "plan": FOUND | {"observedGeneration": 1}
    }


@pytest.mark.parametrize("step", [{"chunkTokens": 256}, {"maxBatchTokens": 1024}])
def test_a_colocated_shape_is_made_and_remembered_with_the_size_of_its_steps(step: dict[str, int]) -> None:
    """B24."""
    found = FOUND | {"colocated": ONE | {"tp": 3} | step, "shape": "1xTP3 colocated"}
    del found["prefill"], found["decode"]
    answer = recorded_plan({"plan": found})
    assert answer is not None
    decision = decide(wanted(), Answered(answer), None, "fleet")
    assert decision.untouched is None
    shape = Shape(3, 1, 1, step.get("maxBatchTokens"), step.get("chunkTokens"))
    assert decision.deployment is not None
    assert decision.deployment.placement == Colocated(shape)
    memory = memory_with_plan({}, found, decision, "fleet")
    assert memory["serving"] == {"colocated": found["colocated"], "fleetDigest": "fleet"}
    assert recorded_serving(memory) == Serving(Colocated(shape), "fleet")


def test_an_answer_that_is_not_made_leaves_the_memory_of_what_serves() -> None:
    before = {"serving": {"prefill": ONE, "decode": ONE, "fleetDigest": "fleet"}, "plan": {"shape": "1xTP1 -> 1xTP1"}}
    infeasible = plan(outcome="RateUnreachable")
    decision = decide(wanted(), Answered(infeasible), recorded_serving(before), "fleet")
    assert memory_with_plan(before, FOUND, decision, "fleet")["serving"] == before["serving"]
    pending = decide(wanted(), Searching(), recorded_serving(before), "fleet")
    assert memory_after(before, wanted(), Searching(), pending, "fleet") == before


@pytest.mark.parametrize("change", [{"outcome": "Great"}, {"inputsDigest": None}, {"prefill": {"tp": []}, "decode": 3}])
def test_a_record_that_is_not_understood_is_none(change: dict[str, Any]) -> None:
    broken = {name: value for name, value in (FOUND | change).items() if value is not None}
    assert recorded_plan({"plan": broken}) is None
    assert recorded_plan(None) is recorded_plan({}) is recorded_plan({"plan": {"shape": "x", "devices": 2}}) is None
