"""What the API server itself says to the parts of a resource that a search reads."""

from typing import Any

import pytest
from distserve_testing.rest import Rest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from distserve_operator.api.parsing import parse
from distserve_operator.api.targets import Slo, Targets, Tokens, Workload
from distserve_operator.observed.nodes import Survey
from distserve_operator.plan.inputs import inputs_digest
from distserve_operator.plan.question import question_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

CPU = {"deviceType": "CPU", "coresPerDevice": 1, "maxDevices": 2}
MODEL = {"uri": "hf://a/opt-125m"}
SLO = {"ttftMilliseconds": 300, "tpotMilliseconds": 50}
TOKENS = {"mean": 60, "variationPercent": 50}
WORKLOAD = {"inputTokens": TOKENS, "outputTokens": TOKENS}
AUTO: dict[str, Any] = {"model": MODEL, "cluster": CPU, "placement": {"type": "Auto"}, "slo": SLO, "workload": WORKLOAD}
RATE = "write a decimal number of requests per second from 0.001 to 100000"


def slo(**fields: Any) -> dict[str, Any]:
    return {"slo": SLO | fields}


def workload(**fields: Any) -> dict[str, Any]:
    return {"workload": WORKLOAD | fields}


def rate(text: Any) -> dict[str, Any]:
    return workload(requestsPerSecond=text)


# What is changed, and the text with the field, the value and what to do.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"slo": None}, "placement.type is Auto but slo is missing: the search needs slo.ttftMilliseconds"),
    ({"workload": None}, "placement.type is Auto but workload is missing"),
    ({"placement": {"type": "Auto", "prefill": {}}}, "placement.type is Auto but placement.prefill is set: remove it"),
    ({"placement": {"type": "Auto", "decode": {}}}, "placement.type is Auto but placement.decode is set: remove it"),
    ({"placement": {"type": "Auto", "colocated": {}}}, "Auto but placement.colocated is set: remove it"),
    ({"slo": {"ttftMilliseconds": 300}}, "spec.slo.tpotMilliseconds: Required value"),
    (slo(ttftMilliseconds=0), "spec.slo.ttftMilliseconds: Invalid value: 0"),
    (slo(tpotMilliseconds=-5), "spec.slo.tpotMilliseconds: Invalid value: -5"),
    (slo(tpotMilliseconds=7.5), "spec.slo.tpotMilliseconds"),
    (slo(maxGapMilliseconds=0), "spec.slo.maxGapMilliseconds: Invalid value: 0"),
    (slo(attainmentPercent=101), "spec.slo.attainmentPercent: Invalid value: 101"),
    (rate("many"), f'workload.requestsPerSecond is "many": {RATE}'),
    (rate("0"), f'workload.requestsPerSecond is "0": {RATE}'),
    (rate("-1"), f'workload.requestsPerSecond is "-1": {RATE}'),
    (rate("1e3"), f'workload.requestsPerSecond is "1e3": {RATE}'),
    (rate("NaN"), f'workload.requestsPerSecond is "NaN": {RATE}'),
    (rate("200000"), f'workload.requestsPerSecond is "200000": {RATE}'),
    (rate(20), "spec.workload.requestsPerSecond"),
    ({"workload": {"inputTokens": TOKENS}}, "spec.workload.outputTokens: Required value"),
    (workload(inputTokens={}), "spec.workload.inputTokens.mean: Required value"),
    (workload(inputTokens=TOKENS | {"mean": 0}), "spec.workload.inputTokens.mean: Invalid value: 0"),
    (workload(inputTokens={"mean": 5}), "variationPercent is missing: distribution LogNormal needs"),
    (workload(outputTokens=TOKENS | {"distribution": "Fixed"}), "variationPercent is 50 but distribution is Fixed"),
    (workload(outputTokens=TOKENS | {"distribution": "Zipf"}), 'outputTokens.distribution: Unsupported value: "Zipf"'),
    (
        {"model": MODEL | {"maxModelLength": 100}},
        "workload.inputTokens.mean is 60 and workload.outputTokens.mean is 60 but model.maxModelLength is 100",
    ),
    ({"cluster": CPU | {"affinity": "Medium"}}, 'spec.cluster.affinity: Unsupported value: "Medium"'),
    ({"mode": "Dry"}, 'spec.mode: Unsupported value: "Dry"'),
]

tokens = st.one_of(
    st.builds(lambda mean, cv: {"mean": mean, "variationPercent": cv}, st.integers(1, 60), st.integers(0, 10_000)),
    st.builds(lambda mean: {"distribution": "Fixed", "mean": mean}, st.integers(1, 60)),
)
milliseconds = st.integers(1, 3_600_000)
numbers = st.one_of(
    st.decimals("0.001", "100000", allow_nan=False, places=3).map(str),
    st.sampled_from(["0.001", "100000", "007", "1.", ".5", "1_0", "٣", "1.5.2", " 1", "100000.1"]),
)
specs = st.builds(
    lambda targets, load, affinity, mode: AUTO | {"slo": targets, "workload": load, "mode": mode} | affinity,
    st.fixed_dictionaries(
        {"ttftMilliseconds": milliseconds, "tpotMilliseconds": milliseconds},
        optional={"maxGapMilliseconds": milliseconds, "attainmentPercent": st.integers(1, 100)},
    ),
    st.fixed_dictionaries({"inputTokens": tokens, "outputTokens": tokens}, optional={"requestsPerSecond": numbers}),
    st.sampled_from(["Auto", "High"]).map(lambda affinity: {"cluster": CPU | {"affinity": affinity}}),
    st.sampled_from(["Apply", "Plan"]),
)


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    kind = {"apiVersion": "distserve.io/v1alpha1", "kind": "DistServeDeployment"}
    given = {name: value for name, value in spec.items() if value is not None}
    return {**kind, "metadata": {"name": "x"}, "spec": given}


def test_every_malformed_resource_is_refused_with_field_value_and_fix(rest: Rest) -> None:
    for changes, text in REFUSED:
        refused = rest.try_create("distservedeployments", "default", manifest(AUTO | changes), dryRun="All")
        assert refused.status_code == 422, changes
        assert text in refused.json()["message"].replace("\\", ""), changes


def test_defaults_are_filled_in_by_the_server(rest: Rest) -> None:
    found = parse(rest.create("distservedeployments", "default", manifest(AUTO), dryRun="All"))
    load = Workload(None, Tokens(60, 50), Tokens(60, 50))
    assert found.placement == Targets(Slo(300, 50, None, 90), load)
    assert (found.mode, found.cluster.affinity) == ("Apply", "Auto")


@settings(
    max_examples=100,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(spec=specs)
def test_what_the_schema_accepts_can_be_asked(rest: Rest, spec: dict[str, Any]) -> None:
    """Neither `SpecInvalid` nor a failure of the search can be the answer to a spec that the API server took."""
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = rest.try_create("distservedeployments", "default", manifest(spec), **strict)
    event(f"{answer.status_code}")
    if answer.status_code == 422:
        return
    assert answer.status_code == 201, answer.text
    wanted = parse(answer.json())
    assert isinstance(wanted.placement, Targets)
    assert inputs_digest(wanted, wanted.placement)
    assert question_of(wanted, wanted.placement, Survey((2,)))
