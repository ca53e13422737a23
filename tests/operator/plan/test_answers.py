"""An answer of the search as a part of the status."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from distserve_testing.deployments import auto_resource
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_operator.observed.recorded import PlanOutcome, recorded_plan
from distserve_operator.placement.answer import Candidate, Counted, KvMove, Percentiles, Plan, Served
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape
from distserve_operator.plan.answers import answer_status, refusal_status, three_digits

numbers = st.floats(0, allow_nan=False) | st.just(math.inf)
percentiles = st.none() | st.builds(Percentiles, numbers, numbers, numbers)
pools = st.builds(Pool, st.builds(Shape, st.integers(1, 8), st.integers(1, 8)), st.integers(1, 9))
placements: st.SearchStrategy[Placement] = st.one_of(
    st.builds(Disaggregated, pools, pools, st.integers(1, 3), st.none() | st.integers(1, 3)),
    st.builds(Colocated, pools, st.none() | st.integers(1, 4096)),
)
candidates = st.builds(Candidate, placements, st.floats(0, 1e6), st.just((0.0, 1.0)))
plans = st.builds(
    Plan,
    feasible=st.booleans(),
    chosen=st.none() | candidates,
    served=st.none() | st.builds(Served, numbers, st.floats(0, 1), percentiles, percentiles, percentiles),
    kv=st.none() | st.builds(KvMove, st.floats(0, 1e15), st.floats(0, 1e6), st.sampled_from(["node", "network"])),
    memory_per_device=st.just({}),
    binding=st.text(max_size=5),
    reasons=st.lists(st.text(max_size=5), max_size=12).map(tuple),
    runner_up=st.none() | candidates,
    runner_up_lost=st.text(max_size=5),
    best_disaggregated=st.none(),
    best_colocated=st.none(),
    flip_overlap=st.none(),
    top=st.just(()),
    counted=st.builds(Counted, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)),
    source=st.text(max_size=5),
)
BATCHES = {tp: 512 * tp for tp in range(1, 9)}
RECORD = {"inventory": "1x8", "planner": "1", "inputsDigest": "d", "observedGeneration": 1}


@given(plans, st.floats(0, 1e9))
@settings(max_examples=150)
def test_every_answer_fits_the_schema_and_is_understood(
    check_schema: Callable[[dict[str, Any]], None], plan: Plan, milliseconds: float
) -> None:
    found = answer_status(plan, milliseconds, BATCHES)
    check_schema(auto_resource() | {"status": {"plan": found | RECORD}})
    read = recorded_plan({"plan": found | RECORD})
    assert read is not None
    assert read.feasible == plan.feasible
    assert read.reasons == plan.reasons[:8]
    chosen = None if plan.chosen is None else plan.chosen.placement
    if chosen is None or (isinstance(chosen, Disaggregated) and chosen.segments is not None):
        assert read.placement is None, "there is none, or one that takes pods of both roles"
    else:
        assert read.placement is not None
        assert (read.placement.devices, str(read.placement)) == (chosen.devices, str(chosen))
    assert "inf" not in str([value for name, value in found.items() if name not in {"binding", "reasons"}])


@pytest.mark.parametrize(
    ("placement", "prefill", "decode", "colocated"),
    [
        (Disaggregated(Pool(Shape(2, 1), 1), Pool(Shape(4, 1), 1)), {"maxBatchTokens": 1024}, {}, None),
        (Colocated(Pool(Shape(4, 1), 1), None), None, None, {"maxBatchTokens": 2048}),
        (Colocated(Pool(Shape(4, 1), 1), 512), None, None, {"chunkTokens": 512}),
    ],
)
def test_the_size_of_steps_is_a_part_of_the_answer(
    placement: Placement,
    prefill: dict[str, int] | None,
    decode: dict[str, int] | None,
    colocated: dict[str, int] | None,
) -> None:
    """L_m of the prefill instances, or the budget of a mixed step."""
    nothing = Percentiles(math.inf, math.inf, math.inf)
    served = Served(1.0, 1.0, nothing, nothing, nothing)
    chosen = Candidate(placement, 1.0, (1.0, 1.0))
    nobody = (None, None, None, ())
    plan = Plan(True, chosen, served, None, {}, "", (), None, "", *nobody, Counted(0, 0, 0), "")
    found = answer_status(plan, 1.0, BATCHES)
    parallelism = {"tp", "pp", "replicas"}
    for role, expected in {"prefill": prefill, "decode": decode, "colocated": colocated}.items():
        pool = found.get(role)
        assert expected == (None if pool is None else {k: v for k, v in pool.items() if k not in parallelism})


@pytest.mark.parametrize("outcome", list(PlanOutcome))
def test_a_refusal_fits_the_schema_too(check_schema: Callable[[dict[str, Any]], None], outcome: PlanOutcome) -> None:
    found = refusal_status(outcome, "a fleet takes 2 devices") | RECORD
    check_schema(auto_resource() | {"status": {"plan": found}})
    read = recorded_plan({"plan": found})
    assert read is not None
    assert (read.outcome, read.shape, read.placement) == (outcome, "", None)


@pytest.mark.parametrize(
    ("number", "text"),
    [(3.14159, "3.14"), (0.0, "0"), (1234567.0, "1230000"), (0.00123456, "0.00123"), (99.96, "100"), (2.0, "2")],
)
def test_numbers_have_three_digits_and_no_exponent(number: float, text: str) -> None:
    assert three_digits(number) == text


def plan_that_serves(served: Served) -> Plan:
    nobody = (None, None, None, ())
    return Plan(True, None, served, None, {}, "", (), None, "", *nobody, Counted(0, 0, 0), "")


def test_attainment_is_never_rounded_up_to_the_target() -> None:
    nothing = Percentiles(math.inf, math.inf, math.inf)
    found = answer_status(plan_that_serves(Served(1.0, 0.8999, nothing, nothing, nothing)), 1.0, BATCHES)
    assert found["attainmentPercent"] == 89
    assert found["p90"] == {}


def test_a_time_that_no_request_has_is_absent() -> None:
    served = Served(1.0, 1.0, Percentiles(0.1, 0.2, 0.3), None, None)
    assert answer_status(plan_that_serves(served), 1.0, BATCHES)["p90"] == {"ttftMilliseconds": "200"}
