"""Reads a DistServeDeployment as the API server delivers it, so after schema, defaults and CEL rules.

The checks here are for objects stored under an older schema: they must end in a condition, never in a crash.
"""

from collections.abc import Mapping
from typing import Any

from distserve_operator.api.deployment import (
    Affinity,
    Cluster,
    Gateway,
    Mode,
    Model,
    Security,
    Wanted,
)
from distserve_operator.api.devices import DeviceType
from distserve_operator.api.model import HubModel, ModelSource, SecretKey, parse_model_uri
from distserve_operator.api.quantities import parse_bytes
from distserve_operator.api.shape import Colocated, Disaggregated, Placement, Shape
from distserve_operator.api.targets import Slo, Targets, Tokens, Workload

NVIDIA_GPU = "nvidia.com/gpu"


class SpecError(ValueError):
    """A spec that cannot be understood; the text names the field."""


def parse(body: Mapping[str, Any]) -> Wanted:
    """The typed view of an object. Raises `SpecError`."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    try:
        return Wanted(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            mode=Mode(spec.get("mode", Mode.APPLY)),
            model=_model(spec["model"], metadata["name"]),
            cluster=_cluster(spec["cluster"]),
            placement=_placement(spec),
            gateway=_gateway(spec.get("gateway") or {}),
            security=_security(spec.get("security") or {}),
        )
    except KeyError as error:
        raise SpecError(f"spec has no field {error}") from error
    except (TypeError, ValueError) as error:
        raise SpecError(f"spec: {error}") from error


def _model(model: Mapping[str, Any], default_name: str) -> Model:
    return Model(
        uri=model["uri"],
        source=_source(model["uri"], model.get("hub") or {}),
        dtype=model.get("dtype", "BF16"),
        served_name=model.get("servedName", default_name),
        max_model_length=model.get("maxModelLength"),
    )


def _source(uri: str, hub: Mapping[str, Any]) -> ModelSource:
    source, secret = parse_model_uri(uri), hub.get("tokenSecret")
    if not isinstance(source, HubModel):
        return source
    token = None if secret is None else SecretKey(secret["name"], secret.get("key", "token"))
    return HubModel(uri, token, hub.get("cacheClaim"))


def _cluster(cluster: Mapping[str, Any]) -> Cluster:
    device_type = DeviceType(cluster["deviceType"])
    is_cpu = device_type is DeviceType.CPU
    return Cluster(
        device_type=device_type,
        resource_name=None if is_cpu else cluster.get("resourceName", NVIDIA_GPU),
        cores_per_device=cluster["coresPerDevice"] if is_cpu else None,
        memory_per_device=parse_bytes(cluster.get("memoryPerDevice", "4Gi")),
        max_devices=cluster["maxDevices"],
        affinity=Affinity(cluster.get("affinity", Affinity.AUTO)),
    )


def _placement(spec: Mapping[str, Any]) -> Placement | Targets:
    placement = spec["placement"] or {}
    match placement.get("type", "Manual"):
        case "Manual":
            return _manual(placement)
        case "Auto":
            return Targets(_slo(spec["slo"]), _workload(spec["workload"]))
    raise ValueError(f"placement.type is {placement['type']!r}: write Manual or Auto")


def _manual(placement: Mapping[str, Any]) -> Placement:
    if "colocated" in placement:
        return Colocated(_shape(placement["colocated"]))
    return Disaggregated(_shape(placement["prefill"]), _shape(placement["decode"]))


def _shape(shape: Mapping[str, Any]) -> Shape:
    return Shape(
        tp=shape.get("tp", 1),
        pp=shape.get("pp", 1),
        replicas=shape.get("replicas", 1),
        max_batch_tokens=shape.get("maxBatchTokens"),
        chunk_tokens=shape.get("chunkTokens"),
    )


def _slo(slo: Mapping[str, Any]) -> Slo:
    return Slo(
        ttft_milliseconds=slo["ttftMilliseconds"],
        tpot_milliseconds=slo["tpotMilliseconds"],
        max_gap_milliseconds=slo.get("maxGapMilliseconds"),
        attainment_percent=slo.get("attainmentPercent", 90),
    )


def _workload(workload: Mapping[str, Any]) -> Workload:
    rate = workload.get("requestsPerSecond")
    return Workload(
        requests_per_second=None if rate is None else float(rate),
        input_tokens=_tokens(workload["inputTokens"]),
        output_tokens=_tokens(workload["outputTokens"]),
    )


def _tokens(tokens: Mapping[str, Any]) -> Tokens:
    return Tokens(mean=tokens["mean"], variation_percent=tokens.get("variationPercent", 0))


def _gateway(gateway: Mapping[str, Any]) -> Gateway:
    return Gateway(replicas=gateway.get("replicas", 1), port=gateway.get("port", 8000))


def _security(security: Mapping[str, Any]) -> Security:
    return Security(isolate_prefixes=security.get("isolatePrefixes", False))
