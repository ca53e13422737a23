"""What makes a question another question."""

from typing import Any

import pytest
from distserve_testing.deployments import auto_resource

from distserve_operator.api.parsing import parse
from distserve_operator.api.targets import Targets
from distserve_operator.plan.inputs import fleet_digest, inputs_digest

LENGTHS = {"distribution": "LogNormal", "mean": 61, "variationPercent": 50}


def digests(path: str = "", value: Any = None) -> tuple[str, str]:
    body = auto_resource()
    if path:
        *parents, last = path.split(".")
        place = body
        for parent in parents:
            place = place[parent]
        place[last] = value
    wanted = parse(body)
    assert isinstance(wanted.placement, Targets)
    return inputs_digest(wanted, wanted.placement), fleet_digest(wanted)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.model.uri", "pvc://models/smollm2-360m.gguf"),
        ("spec.model.dtype", "BF16"),
        ("spec.model.maxModelLength", 1024),
        ("spec.cluster.coresPerDevice", 2),
        ("spec.cluster.memoryPerDevice", "4Gi"),
    ],
)
def test_another_model_or_device_is_another_question_and_another_fleet(path: str, value: Any) -> None:
    inputs, fleet = digests(path, value)
    assert inputs != digests()[0]
    assert fleet != digests()[1]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.slo.ttftMilliseconds", 2001),
        ("spec.slo.tpotMilliseconds", 201),
        ("spec.slo.maxGapMilliseconds", 500),
        ("spec.slo.attainmentPercent", 91),
        ("spec.workload.requestsPerSecond", "2.5"),
        ("spec.workload.inputTokens", LENGTHS),
        ("spec.workload.outputTokens", LENGTHS),
        ("spec.cluster.maxDevices", 5),
        ("spec.cluster.affinity", "High"),
        ("spec.mode", "Plan"),
    ],
)
def test_other_targets_load_or_bounds_are_another_question_for_the_same_fleet(path: str, value: Any) -> None:
    inputs, fleet = digests(path, value)
    assert inputs != digests()[0]
    assert fleet == digests()[1]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.generation", 7),
        ("metadata.name", "other"),
        ("spec.model.servedName", "other"),
        ("spec.gateway.replicas", 3),
        ("spec.workload.requestsPerSecond", "2.0"),
    ],
)
def test_nothing_else_is(path: str, value: Any) -> None:
    assert digests(path, value) == digests()


def test_digests_are_the_same_in_every_operator_version() -> None:
    """B26: a change of these constants searches every deployment in the field anew when the operator is upgraded."""
    assert digests() == ("3d83718732259393", "9e69103898f16086")
