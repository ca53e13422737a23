"""DistServeDeployments and pods as the API server would deliver them, and the schema that they must fit."""

import copy
from pathlib import Path
from typing import Any

import yaml

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.parsing import parse
from distserve_operator.api.settings import ImageSource, WorkloadSettings
from distserve_operator.api.shape import Placement

ROOT = Path(__file__).parents[3]
CRD = ROOT / "crds" / "distservedeployments.distserve.io.yaml"
SAMPLES = sorted((ROOT / "docs" / "samples").glob("*.yaml"))
UID = "11111111-2222-3333-4444-555555555555"


def workloads(
    worker: str = "distserve/worker:dev",
    gateway: str = "distserve/gateway:dev",
    pull_policy: str = "IfNotPresent",
    pull_secrets: tuple[str, ...] = (),
    gateway_cluster_role: str = "distserve-gateway",
) -> WorkloadSettings:
    """What the operator's flags say; the first two are images."""
    return WorkloadSettings(
        worker=ImageSource(worker, pull_policy, pull_secrets),
        gateway=ImageSource(gateway, pull_policy, pull_secrets),
        gateway_cluster_role=gateway_cluster_role,
    )


SETTINGS = workloads()


def resource(
    name: str = "chat",
    *,
    uri: str = "pvc://models/smollm2.gguf",
    prefill: int | dict[str, int] = 1,
    decode: int | dict[str, int] = 1,
    colocated: int | dict[str, int] | None = None,
    max_devices: int = 2,
    generation: int = 1,
    cluster: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A resource with its defaults filled in; `cluster` adds to a CPU fleet, `spec` replaces whole sections.

    A role is given by its replicas or by fields of its shape; `colocated` takes the place of the other two.
    """
    roles = {"prefill": prefill, "decode": decode} if colocated is None else {"colocated": colocated}
    devices = {"deviceType": "CPU", "coresPerDevice": 1, "memoryPerDevice": "3Gi", "maxDevices": max_devices}
    return {
        "apiVersion": "distserve.io/v1alpha1",
        "kind": "DistServeDeployment",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": UID,
            "generation": generation,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "model": {"uri": uri, "dtype": "FP32", "servedName": "smollm2", "maxModelLength": 2048},
            "cluster": devices | (cluster or {}),
            "placement": {"type": "Manual", **{role: _shape(given) for role, given in roles.items()}},
            "gateway": {"replicas": 1, "port": 8000},
        }
        | spec,
    }


def _shape(given: int | dict[str, int]) -> dict[str, int]:
    return {"tp": 1, "pp": 1, "replicas": 1} | ({"replicas": given} if isinstance(given, int) else given)


def deployment(name: str = "chat", **options: Any) -> DistServeDeployment:
    """The typed view of `resource`."""
    return placed(resource(name, **options))


def placed(body: dict[str, Any]) -> DistServeDeployment:
    """The typed view of a resource in which its shape is written."""
    wanted = parse(body)
    assert isinstance(wanted.placement, Placement)
    return wanted.placed(wanted.placement)


def auto_resource(name: str = "chat", *, rate: str | None = "2", **options: Any) -> dict[str, Any]:
    """A resource whose shape is to be searched: two CPU devices hold its targets at 2 requests/s."""
    tokens = {"distribution": "LogNormal", "mean": 60, "variationPercent": 50}
    workload = {"inputTokens": tokens, "outputTokens": tokens}
    sections: dict[str, Any] = {
        "slo": {"ttftMilliseconds": 2000, "tpotMilliseconds": 200, "attainmentPercent": 90},
        "workload": workload if rate is None else workload | {"requestsPerSecond": rate},
        "placement": {"type": "Auto"},
        "mode": "Apply",
    }
    usual: dict[str, Any] = {"uri": "pvc://models/smollm2-135m.gguf", "max_devices": 4}
    return resource(name, **usual | sections | options)


def gpu_resource(name: str = "chat", device_type: str = "H100-80GB", **options: Any) -> dict[str, Any]:
    """A resource on a GPU fleet."""
    body = resource(name, **options)
    cluster = body["spec"]["cluster"]
    del cluster["coresPerDevice"]
    cluster["deviceType"] = device_type
    return body


def strict_schema() -> dict[str, Any]:
    """The resource's schema, in which a field that it does not know is an error."""
    crd = yaml.safe_load(CRD.read_text())
    schema = copy.deepcopy(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    _close(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    return dict(schema)


def _close(node: Any) -> None:
    if not isinstance(node, dict):
        return
    if "properties" in node:
        node["additionalProperties"] = False
        for child in node["properties"].values():
            _close(child)
    if "items" in node:
        _close(node["items"])
