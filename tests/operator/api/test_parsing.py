"""From the object in the API to the typed view."""

from typing import Any

import pytest
from distserve_testing.deployments import deployment, gpu_resource, resource

from distserve_operator.api.devices import GPU_PRODUCTS, DeviceType
from distserve_operator.api.model import ClaimModel, HostModel, HubModel, SecretKey, parse_model_uri
from distserve_operator.api.parsing import SpecError, parse
from distserve_operator.api.quantities import parse_bytes
from distserve_operator.api.shape import Colocated, Disaggregated, Shape


def test_a_resource_keeps_what_it_says() -> None:
    found = deployment("chat", prefill=2, decode=3, max_devices=6)
    assert found.placement == Disaggregated(Shape(1, 1, 2), Shape(1, 1, 3))
    assert str(found.placement) == "2xTP1 -> 3xTP1"
    assert found.placement.devices == 5
    assert found.model.source == ClaimModel("models", "smollm2.gguf")
    assert found.cluster.memory_per_device == 3 * 1024**3
    assert found.cluster.resource_name is None


@pytest.mark.parametrize(
    ("fields", "shape", "text"),
    [
        ({"tp": 2, "replicas": 2}, Shape(2, 1, 2), "2xTP2 colocated"),
        ({"pp": 2, "maxBatchTokens": 2048}, Shape(1, 2, 1, max_batch_tokens=2048), "1xTP1PP2 colocated"),
        ({"chunkTokens": 256}, Shape(1, 1, 1, chunk_tokens=256), "1xTP1 colocated, chunks of 256"),
    ],
)
def test_colocated_instances_take_the_place_of_both_roles(fields: dict[str, int], shape: Shape, text: str) -> None:
    found = deployment("chat", colocated=fields, max_devices=4)
    assert found.placement == Colocated(shape)
    assert str(found.placement) == text
    assert list(found.placement.shapes) == ["colocated"]


def test_prefixes_are_shared_unless_the_spec_says_otherwise() -> None:
    assert not deployment().security.isolate_prefixes
    assert deployment(security={"isolatePrefixes": True}).security.isolate_prefixes


@pytest.mark.parametrize(
    ("hub", "token", "claim"),
    [
        ({}, None, None),
        ({"tokenSecret": {"name": "hf"}}, SecretKey("hf", "token"), None),
        ({"tokenSecret": {"name": "hf", "key": "k"}, "cacheClaim": "cache"}, SecretKey("hf", "k"), "cache"),
    ],
)
def test_a_hub_has_its_token_and_its_cache(hub: dict[str, Any], token: SecretKey | None, claim: str | None) -> None:
    uri = "hf://org/name@main"
    found = deployment(model={"uri": uri, "hub": hub})
    assert found.model.source == HubModel(uri, token, claim)


def test_a_model_without_a_name_is_served_under_the_deployments_name() -> None:
    body = resource("chat")
    del body["spec"]["model"]["servedName"]
    assert parse(body).model.served_name == "chat"


def test_a_gpu_fleet_asks_for_nvidia_gpus_by_default() -> None:
    assert parse(gpu_resource()).cluster.resource_name == "nvidia.com/gpu"
    assert parse(gpu_resource(cluster={"resourceName": "example.com/gpu"})).cluster.resource_name == "example.com/gpu"


def test_every_gpu_type_has_node_labels() -> None:
    assert set(GPU_PRODUCTS) == set(DeviceType) - {DeviceType.CPU}
    assert all(GPU_PRODUCTS.values())


def test_a_shape_shows_its_pipeline_only_when_it_has_one() -> None:
    assert str(Shape(4, 1, 2)) == "2xTP4"
    assert str(Shape(4, 2, 1)) == "1xTP4PP2"


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("hf://meta-llama/Llama-3.1-8B@main", HubModel("hf://meta-llama/Llama-3.1-8B@main")),
        ("pvc://models/a/b.gguf", ClaimModel("models", "a/b.gguf")),
        ("pvc://models/a//b/", ClaimModel("models", "a/b")),
        ("file:///data/models/x", HostModel("/data/models", "x")),
    ],
)
def test_model_uris(uri: str, source: object) -> None:
    assert parse_model_uri(uri) == source


@pytest.mark.parametrize(
    "uri", ["", "s3://x/y", "pvc://models", "file://relative/x", "file:///x", "pvc://m/../x", "hf://"]
)
def test_other_uris_are_refused_with_the_forms_there_are(uri: str) -> None:
    with pytest.raises(ValueError, match=r"write hf://|must not contain"):
        parse_model_uri(uri)


@pytest.mark.parametrize(
    ("text", "size"),
    [("3Gi", 3 * 1024**3), ("1500M", 1_500_000_000), ("2e9", 2_000_000_000), ("1000m", 1), ("0.5Ki", 512)],
)
def test_quantities(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "3X", "-1Gi", "NaN", "0", "Gi"])
def test_other_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("model", {}),
        ("model", {"uri": "s3://x"}),
        ("cluster", {"deviceType": "TPU", "maxDevices": 1}),
        ("cluster", {"deviceType": "CPU", "maxDevices": 1}),
        ("placement", {"type": "Manual"}),
        ("placement", None),
        ("cluster", {"deviceType": "CPU", "coresPerDevice": 1, "memoryPerDevice": "much", "maxDevices": 1}),
    ],
)
def test_what_an_older_schema_let_through_is_an_error_and_no_crash(section: str, value: Any) -> None:
    body = resource()
    body["spec"][section] = value
    with pytest.raises(SpecError, match="spec"):
        parse(body)


def test_a_resource_without_spec_is_an_error_and_no_crash() -> None:
    body = resource()
    del body["spec"]
    with pytest.raises(SpecError, match="model"):
        parse(body)
