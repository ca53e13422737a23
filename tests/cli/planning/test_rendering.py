"""Answers as JSON, YAML, CSV and tables: every documented key is there, and no NaN or infinity ever (B40)."""

import csv
import json
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_cli.planning.answer import Answer
from distserve_cli.planning.rendering import answer_json, csv_text, served_json
from distserve_cli.planning.tables import headline, print_plan, print_served
from distserve_operator.placement.answer import Candidate, Counted, KvMove, Percentiles, Plan, Served
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape

NUMBERS = st.floats(0) | st.sampled_from([math.nan, math.inf, 0.0])
SHAPES = st.builds(Shape, st.integers(1, 8), st.integers(1, 4))
POOLS = st.builds(Pool, SHAPES, st.integers(1, 9))
PLACEMENTS: st.SearchStrategy[Placement] = st.one_of(
    st.builds(Disaggregated, POOLS, POOLS, st.integers(1, 3), st.none() | st.integers(1, 4)),
    st.builds(Colocated, POOLS, st.none() | st.sampled_from([256, 512])),
)
CANDIDATES = st.builds(Candidate, PLACEMENTS, NUMBERS, st.tuples(NUMBERS, NUMBERS))
PERCENTILES = st.none() | st.builds(Percentiles, NUMBERS, NUMBERS, NUMBERS)
SERVED = st.builds(Served, NUMBERS, NUMBERS, PERCENTILES, PERCENTILES, PERCENTILES, st.none() | st.booleans())
PLANS = st.builds(
    Plan,
    feasible=st.booleans(),
    chosen=st.none() | CANDIDATES,
    served=st.none() | SERVED,
    kv=st.none() | st.builds(KvMove, NUMBERS, NUMBERS, st.sampled_from(["node", "network"])),
    memory_per_device=st.dictionaries(st.sampled_from(["prefillWeights", "decodeKv"]), NUMBERS),
    binding=st.text(),
    reasons=st.lists(st.text()).map(tuple),
    runner_up=st.none() | CANDIDATES,
    runner_up_lost=st.text(),
    best_disaggregated=st.none() | CANDIDATES,
    best_colocated=st.none() | CANDIDATES,
    flip_overlap=st.none() | NUMBERS,
    top=st.lists(CANDIDATES, max_size=3).map(tuple),
    counted=st.builds(Counted, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    source=st.text(),
)
KEYS = {
    "feasible", "shape", "prefill", "decode", "colocated", "units", "segments", "devices",
    "goodput", "goodputPerDevice", "goodputInterval", "rate", "attainment", "ttft", "tpot", "gap",
    "kv", "memoryPerDevice", "binding", "reasons", "runnerUp", "alternatives", "candidates",
    "searchMilliseconds", "searchCpuMilliseconds", "latencySource",
}  # fmt: skip

SPLIT = Candidate(Disaggregated(Pool(Shape(2, 1), 2), Pool(Shape(4, 1), 1), 1, 1), 9.1, (8.9, 9.3))
BOTH = Candidate(Colocated(Pool(Shape(2, 2), 1), 512), 3.0, (2.9, 3.1))
QUICK = Percentiles(0.1, 0.2, 0.25)
GOOD = Plan(
    feasible=True,
    chosen=SPLIT,
    served=Served(9.1, 0.942, QUICK, Percentiles(0.01, 0.02, 0.03), Percentiles(0.1, 0.1, math.inf)),
    kv=KvMove(1.13e9, 0.0045, "node"),
    memory_per_device={"prefillWeights": 1.3e10, "prefillKv": 6.6e10, "decodeWeights": 6e9, "decodeKv": 7e10},
    binding="TTFT: above 9.1 req/s its 90th percentile leaves 200 ms",
    reasons=("2xTP2 -> 1xTP4 has the best goodput per device",),
    runner_up=BOTH,
    runner_up_lost="its goodput per device is 34 % lower",
    best_disaggregated=SPLIT,
    best_colocated=BOTH,
    flip_overlap=0.75,
    top=(SPLIT, BOTH),
    counted=Counted(12, 345, 678),
    source="shipped profile",
)
TARGETS = {"ttft": 250.0, "tpot": 100.0, "gap": None}


@given(plan=PLANS, top=st.integers(0, 3))
def test_any_plan_is_json_and_yaml_with_all_keys(plan: Plan, top: int) -> None:
    shown = answer_json(Answer(plan, 1.0, 2.0), top)
    assert shown.keys() == KEYS
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert yaml.safe_load(yaml.safe_dump(shown, sort_keys=False)) == shown
    assert len(shown["alternatives"]["top"]) <= top


@given(plan=PLANS)
@settings(max_examples=20)
def test_any_plan_is_a_table(plan: Plan) -> None:
    print_plan(answer_json(Answer(plan, 1.0, 2.0), 3), TARGETS)


@given(rows=st.lists(SERVED, min_size=1, max_size=4))
@settings(max_examples=20)
def test_any_simulation_is_json_csv_and_a_table(rows: list[Served]) -> None:
    shown = [{**served_json(row), "steady": row.steady} for row in rows]
    json.dumps(shown, allow_nan=False)
    lines = list(csv.DictReader(csv_text(shown).splitlines()))
    assert len(lines) == len(rows)
    assert "nan" not in csv_text(shown)
    assert "inf" not in csv_text(shown)
    print_served("1xTP1", shown)


def test_a_plan_has_the_figures_in_milliseconds_and_percent() -> None:
    shown = answer_json(Answer(GOOD, 12.34, 23.45), 2)
    assert shown["prefill"] == {"tp": 2, "pp": 1, "replicas": 2}
    assert shown["decode"] == {"tp": 4, "pp": 1, "replicas": 1}
    assert shown["colocated"] is None
    assert (shown["segments"], shown["devices"]) == (1, 8)
    assert shown["goodputPerDevice"] == pytest.approx(9.1 / 8, abs=1e-4)
    assert shown["goodputInterval"] == [8.9, 9.3]
    assert shown["attainment"] == 94.2
    assert shown["ttft"] == {"p50": 100, "p90": 200, "p99": 250}
    assert shown["gap"]["p99"] is None
    assert shown["kv"] == {"bytes": 1_130_000_000, "milliseconds": 4.5, "link": "node"}
    assert shown["runnerUp"]["colocated"] == {"tp": 2, "pp": 2, "replicas": 1, "chunkTokens": 512}
    assert shown["runnerUp"]["lost"] == "its goodput per device is 34 % lower"
    assert shown["alternatives"]["flipOverlap"] == 0.75
    assert [one["shape"] for one in shown["alternatives"]["top"]] == [
        "2xTP2 -> 1xTP4",
        "1xTP2PP2 colocated, chunks of 512",
    ]
    assert shown["candidates"] == {"evaluated": 12, "pruned": 345, "simulations": 678}
    assert (shown["searchMilliseconds"], shown["searchCpuMilliseconds"]) == (12.3, 23.4)


def test_the_first_line_of_a_table_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(answer_json(Answer(GOOD, 12.34, 23.45), 2), TARGETS)
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == "2xTP2 -> 1xTP4: 8 devices, 9.1 requests/s (1.137 per device), 94.2 % meet the targets at 9.1 requests/s"
    )
    text = "\n".join(lines)
    for part in (
        "1.13 GB a request, 4.5 ms over the node link",
        "12 candidates simulated, 345 pruned",
        "never",
        "0.75",
    ):
        assert part in text


def test_the_first_line_of_a_plan_that_fails_says_so() -> None:
    nothing = Plan(
        False,
        None,
        None,
        None,
        {},
        "Memory: no instance fits",
        (),
        None,
        "",
        None,
        None,
        None,
        (),
        Counted(0, 0, 0),
        "x",
    )
    assert headline(answer_json(Answer(nothing, 1.0, 1.0), 0)) == "Not feasible. Memory: no instance fits"
    shown = {**answer_json(Answer(GOOD, 1.0, 1.0), 0), "feasible": False}
    assert headline(shown).startswith("Not feasible. TTFT: above 9.1 req/s")
    assert "The best that was found: 2xTP2 -> 1xTP4: 8 devices" in headline(shown)
