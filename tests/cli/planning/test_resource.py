"""A DistServeDeployment says what options would say, options go before it, and a wrong field is named."""

from typing import Any

import pytest
import yaml

from distserve_cli.planning.errors import BadInput
from distserve_cli.planning.resource import parse_resource
from distserve_cli.planning.wishes import gather
from distserve_operator.api.deployment import Mode

SPEC: dict[str, Any] = {
    "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct", "dtype": "BF16", "maxModelLength": 8192},
    "slo": {"ttftMilliseconds": 300, "tpotMilliseconds": 50, "attainmentPercent": 99, "maxGapMilliseconds": 400},
    "workload": {
        "requestsPerSecond": "20",
        "inputTokens": {"distribution": "LogNormal", "mean": 760, "variationPercent": 70},
        "outputTokens": {"distribution": "Fixed", "mean": 190},
    },
    "cluster": {"deviceType": "H100-80GB", "maxDevices": 16, "affinity": "Low"},
    "placement": {"type": "Auto"},
}


def text_of(spec: object) -> str:
    return yaml.safe_dump({"kind": "DistServeDeployment", "spec": spec})


def changed(path: str, value: object) -> dict[str, Any]:
    """The spec with one field set."""
    spec: dict[str, Any] = yaml.safe_load(yaml.safe_dump(SPEC))
    *parents, last = path.split(".")
    place = spec
    for parent in parents:
        place = place[parent]
    place[last] = value
    return spec


def test_every_field_is_read() -> None:
    wishes = gather({}, *parse_resource(text_of(SPEC), "cr.yaml"))
    assert wishes.model == "hf://meta-llama/Llama-3.1-8B-Instruct"
    assert (wishes.dtype, wishes.max_model_length) == ("BF16", 8192)
    assert (wishes.ttft_ms, wishes.tpot_ms, wishes.max_gap_ms, wishes.attainment) == (300, 50, 400, 99)
    assert (wishes.rate, wishes.lengths) == (20, "lognormal:760,0.7,190,0.0")
    assert (wishes.gpu, wishes.max_devices, wishes.affinity, wishes.only) == ("H100-80GB", 16, "Low", None)


def test_options_go_before_fields() -> None:
    wishes = gather({"rate": 5.0, "tpot_ms": None, "finite_window": False}, *parse_resource(text_of(SPEC), "cr.yaml"))
    assert (wishes.rate, wishes.tpot_ms, wishes.finite_window) == (5, 50, False)
    assert wishes.named("rate") == "--rate 5.0"
    assert wishes.named("gpu") == "cr.yaml: spec.cluster.deviceType H100-80GB"


def test_what_is_missing_is_named_with_its_option_and_its_field() -> None:
    with pytest.raises(BadInput, match=r"cr.yaml: spec.slo.ttftMilliseconds is missing: write it, or give --ttft-ms"):
        gather({}, *parse_resource(text_of({**SPEC, "slo": {}}), "cr.yaml"))
    with pytest.raises(BadInput, match=r"--ttft-ms is missing: give it, or a resource with spec.slo.ttftMilliseconds"):
        gather({"model": "opt-13b", "gpu": "H200"}, {}, {})


def test_what_is_left_out_has_the_default_of_the_schema() -> None:
    wishes = gather({}, *parse_resource(text_of(changed("model", {"uri": "hf://facebook/opt-13b"})), "cr.yaml"))
    assert (wishes.dtype, wishes.mode, wishes.affinity) == ("BF16", Mode.APPLY, "Low")
    assert (wishes.cores_per_device, wishes.memory_per_device) == (1, 4 * 1024**3)


@pytest.mark.parametrize(
    ("placement", "placed"),
    [({"type": "Auto"}, False), ({"type": "Manual", "colocated": {}}, True), ({"colocated": {}}, True), (None, False)],
)
def test_a_placement_of_type_manual_is_known(placement: object, placed: bool) -> None:
    assert gather({}, *parse_resource(text_of(changed("placement", placement)), "cr.yaml")).placed is placed


def test_a_list_with_one_deployment_is_unpacked() -> None:
    items = [
        {"kind": "Namespace"},
        {"apiVersion": "distserve.io/v1alpha1", "kind": "DistServeDeployment", "spec": SPEC},
    ]
    for kind in ("List", "DistServeDeploymentList"):
        text = yaml.safe_dump({"apiVersion": "v1", "kind": kind, "items": items})
        assert parse_resource(text, "cr.yaml")[0]["gpu"] == "H100-80GB"


def test_other_resources_of_the_file_do_not_matter() -> None:
    other = yaml.safe_dump({"kind": "Namespace"})
    assert parse_resource(f"{other}---\n{text_of(SPEC)}---\n", "cr.yaml")[0]["gpu"] == "H100-80GB"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cr.yaml has 0 resources of kind DistServeDeployment: expected one"),
        ("kind: Pod", "has 0 resources"),
        (f"{text_of(SPEC)}---\n{text_of(SPEC)}", "has 2 resources"),
        (
            yaml.safe_dump({"kind": "List", "items": 2 * [{"kind": "DistServeDeployment", "spec": SPEC}]}),
            "cr.yaml has 2 resources of kind DistServeDeployment: expected one",
        ),
        ("kind: List\nitems: 3", "has 0 resources"),
        (
            f"apiVersion: example.com/v1\n{text_of(SPEC)}",
            "cr.yaml: apiVersion is 'example.com/v1': expected distserve.io/v1alpha1",
        ),
        (f"apiVersion: distserve.io/v2\n{text_of(SPEC)}", "apiVersion is 'distserve.io/v2': expected"),
        ("a: [", "cr.yaml is no YAML: while parsing"),
        ("name: 2024-99-99", r"cr.yaml is no YAML: a value is none of its kind \(month must be in 1..12\): correct it"),
        (f"a: {3000 * '['}", "cr.yaml is no YAML: it is nested too deeply"),
        ("a: !!timestamp noon", "cr.yaml is no YAML: a value is none of its kind"),
        ("a: !!bool maybe", "cr.yaml is no YAML: a value is none of its kind"),
        ("kind: DistServeDeployment", "cr.yaml: spec is missing"),
        ("kind: DistServeDeployment\nspec: 3", "cr.yaml: spec is missing"),
    ],
)
def test_a_text_without_a_deployment_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_resource(text, "cr.yaml")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("slo", 3, r"spec.slo is 3: expected fields such as ttftMilliseconds"),
        (
            "slo.ttftMilliseconds",
            0,
            r"spec.slo.ttftMilliseconds: 0 is no number of milliseconds: give a whole number of at least 1",
        ),
        ("slo.tpotMilliseconds", float("nan"), r"spec.slo.tpotMilliseconds: nan is no"),
        ("slo.attainmentPercent", 101, r"spec.slo.attainmentPercent: 101 is no percentage"),
        ("slo.attainmentPercent", True, r"spec.slo.attainmentPercent: True is no percentage"),
        ("workload.requestsPerSecond", "many", r"spec.workload.requestsPerSecond: 'many' is no rate"),
        ("workload", ["x"], r"spec.workload is \['x'\]: expected fields such as requestsPerSecond"),
        ("workload.inputTokens", None, r"spec.workload: inputTokens is None: expected distribution, mean"),
        ("workload.outputTokens.mean", -1, r"spec.workload.outputTokens.mean: -1 is no mean number of tokens"),
        (
            "workload.inputTokens.mean",
            0,
            r"spec.workload.inputTokens.mean: 0 is no mean number of tokens: give a whole",
        ),
        ("workload.inputTokens.mean", 0.5, r"spec.workload.inputTokens.mean: 0.5 is no mean number of tokens"),
        ("workload.inputTokens.mean", 760.5, r"spec.workload.inputTokens.mean: 760.5 is no mean number of tokens"),
        ("workload.inputTokens.mean", "760", r"spec.workload.inputTokens.mean: '760' is text: give a whole number"),
        ("workload.inputTokens.variationPercent", 0.5, r"inputTokens.variationPercent: 0.5 is no variation in percent"),
        ("workload.requestsPerSecond", "1e-300", r"requestsPerSecond: '1e-300' is no rate .*: give .* at least 0.001"),
        ("slo.tpotMilliseconds", 49.9, r"spec.slo.tpotMilliseconds: 49.9 is no number of milliseconds: give a whole"),
        ("slo.attainmentPercent", 99.5, r"spec.slo.attainmentPercent: 99.5 is no percentage: give a whole number"),
        (
            "workload.inputTokens.distribution",
            "Zipf",
            r"spec.workload.inputTokens.distribution: 'Zipf' is not known: give LogNormal, Fixed",
        ),
        (
            "workload.inputTokens",
            {"mean": 9},
            r"spec.workload: inputTokens.variationPercent is missing: distribution LogNormal needs it",
        ),
        (
            "workload.outputTokens.variationPercent",
            70,
            r"spec.workload: outputTokens.variationPercent is 70 but distribution is Fixed: remove it",
        ),
        ("cluster.maxDevices", 0, r"spec.cluster.maxDevices: 0 is no number of devices"),
        ("cluster.affinity", "Medium", r"spec.cluster.affinity: 'Medium' is not known: give Low, High, Auto"),
        ("cluster.deviceType", 5, r"spec.cluster.deviceType: 5 is no text"),
        ("cluster.coresPerDevice", 2, r"spec.cluster: coresPerDevice is 2 but deviceType is H100-80GB: remove it"),
        ("cluster.deviceType", "CPU", r"spec.cluster: coresPerDevice is missing: deviceType CPU needs the number"),
        ("cluster", {"deviceType": "CPU", "coresPerDevice": 0}, r"spec.cluster.coresPerDevice: 0 is no number of"),
        ("cluster.memoryPerDevice", "3Gb", r"spec.cluster.memoryPerDevice: '3Gb' is no memory of a device: give a"),
        ("cluster.memoryPerDevice", "1e99", r"spec.cluster.memoryPerDevice: '1e99' is no memory of a device"),
        ("placement.type", "Autto", r"spec.placement: type 'Autto' is not known: give Manual, Auto"),
        ("placement.type", "Colocated", r"spec.placement: type 'Colocated' is not known: give Manual, Auto"),
        ("placement.type", ["Colocated"], r"spec.placement: type \['Colocated'\] is not known: give Manual, Auto"),
        ("placement", "Auto", r"spec.placement: 'Auto': expected fields such as type"),
        ("mode", "Dream", r"spec.mode: 'Dream' is not known: give Apply, Plan"),
        ("model.dtype", "FP4", r"spec.model.dtype: 'FP4' is not known"),
        ("model.maxModelLength", 0.5, r"spec.model.maxModelLength: 0.5 is no number of tokens"),
    ],
)
def test_a_wrong_field_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_resource(text_of(changed(path, value)), "cr.yaml")
