"""What the API server itself says to resources and pods: rules in CEL, defaults, Pod Security."""

import copy
from typing import Any

import pytest
import yaml
from distserve_testing.clusters import Namespace
from distserve_testing.deployments import SAMPLES, SETTINGS, gpu_resource, placed, resource
from distserve_testing.rest import Rest

from distserve_operator.manifests.children import desired_children
from distserve_operator.manifests.worker_pod import build_worker_pod
from distserve_operator.manifests.worker_template import worker_template

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

CPU = {"deviceType": "CPU", "coresPerDevice": 1, "maxDevices": 2}
GPU = {"deviceType": "H200", "maxDevices": 2}
SHAPE = {"type": "Manual", "prefill": {"replicas": 1}, "decode": {"replicas": 1}}
MODEL = {"uri": "hf://a/b"}

# What is written, and the text with the field, the value and what to do.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": {}}, "spec.model.uri: Required value"),
    ({"model": {"uri": "s3://x"}}, 'model.uri is "s3://x": write hf://organisation/name[@revision], pvc://claim/path'),
    ({"model": {"uri": "pvc://m/../x"}}, 'model.uri is "pvc://m/../x": no part of its path may be "." or ".."'),
    ({"model": {"uri": "file:///data/."}}, 'model.uri is "file:///data/.": no part of its path may be "." or ".."'),
    ({"model": {"uri": "pvc://m/./x"}}, "write the path without them"),
    ({"model": {"uri": "pvc://m..n/x"}}, 'model.uri is "pvc://m..n/x": write'),
    ({"model": {"uri": f"pvc://{'m' * 254}/x"}}, "the name of a claim has at most 253 characters"),
    ({"model": {"uri": "file:///data/a\x01b"}}, "an absolute path of at least two parts"),
    ({"model": {"uri": "file:///x"}}, "an absolute path of at least two parts"),
    ({"model": MODEL | {"dtype": "INT4"}}, 'spec.model.dtype: Unsupported value: "INT4": supported values: "FP32"'),
    ({"model": MODEL | {"maxModelLength": 0}}, "spec.model.maxModelLength"),
    ({"model": MODEL | {"maxModelLength": "long"}}, "spec.model.maxModelLength"),
    ({"model": MODEL | {"servedName": "a b"}}, "spec.model.servedName"),
    ({"cluster": {"deviceType": "TPU", "maxDevices": 2}}, 'spec.cluster.deviceType: Unsupported value: "TPU"'),
    ({"cluster": {"deviceType": "CPU", "maxDevices": 2}}, "cluster.coresPerDevice is missing: deviceType CPU needs"),
    ({"cluster": CPU | {"deviceType": "H200"}}, "cluster.coresPerDevice is 1 but deviceType is H200: remove it"),
    ({"cluster": CPU | {"resourceName": "nvidia.com/gpu"}}, 'cluster.resourceName is "nvidia.com/gpu" but deviceType'),
    ({"cluster": CPU | {"memoryPerDevice": "much"}}, 'cluster.memoryPerDevice is "much": write a quantity'),
    ({"cluster": CPU | {"memoryPerDevice": "1Mi"}}, 'cluster.memoryPerDevice is "1Mi"'),
    *(
        (
            {"cluster": CPU | {"memoryPerDevice": size}},
            f'memoryPerDevice is "{size}": write a quantity of bytes from 64Mi',
        )
        for size in (
            "100000000000000000n",
            "100000000000000u",
            "100000000000m",
            "2Pi",
            "1E",
            "1e99",
            "-3Gi",
            "+3Gi",
            "3.Gi",
        )
    ),
    ({"cluster": CPU | {"maxDevices": 0}}, "spec.cluster.maxDevices: Invalid value: 0"),
    ({"cluster": CPU | {"maxDevices": 1}}, "placement takes 2 devices"),
    ({"cluster": GPU | {"resourceName": "a..b/gpu"}}, "spec.cluster.resourceName"),
    ({"cluster": GPU | {"resourceName": f"example.com/{'g' * 64}"}}, "spec.cluster.resourceName"),
    (
        {"cluster": GPU | {"resourceName": "kubernetes.io/gpu"}},
        'cluster.resourceName is "kubernetes.io/gpu": Kubernetes',
    ),
    ({"placement": {"type": "Manual", "prefill": {}}}, "placement.decode is missing"),
    ({"placement": {"type": "Manual", "decode": {}}}, "placement.prefill is missing"),
    (
        {"placement": {"type": "Manual"}},
        "placement.prefill is missing: give tp, pp and replicas of both",
    ),
    ({"placement": SHAPE | {"colocated": {}}}, "placement.colocated is set and placement.prefill too: remove one"),
    (
        {"placement": {"colocated": {"tp": 2, "replicas": 2}}},
        "takes 4 devices (tp * pp * replicas of colocated)",
    ),
    ({"placement": {"colocated": {"chunkTokens": 8}}}, "spec.placement.colocated.chunkTokens: Invalid value: 8"),
    (
        {"placement": {"colocated": {"chunkTokens": 64, "maxBatchTokens": 512}}},
        "placement.colocated.chunkTokens is 64 and maxBatchTokens is 512: remove one",
    ),
    ({"model": {"uri": "pvc://m/x", "hub": {"cacheClaim": "c"}}}, 'model.hub is set but model.uri is "pvc://m/x"'),
    ({"model": MODEL | {"hub": {"tokenSecret": {}}}}, "spec.model.hub.tokenSecret.name: Required value"),
    ({"model": MODEL | {"hub": {"tokenSecret": {"name": "A"}}}}, "spec.model.hub.tokenSecret.name"),
    ({"model": MODEL | {"hub": {"cacheClaim": "a/b"}}}, "spec.model.hub.cacheClaim"),
    ({"security": {"isolatePrefixes": "yes"}}, "spec.security.isolatePrefixes"),
    ({"placement": SHAPE | {"prefill": {"replicas": 5}}}, "placement takes 6 devices (tp * pp * replicas of prefill"),
    ({"placement": SHAPE | {"prefill": {"replicas": 0}}}, "spec.placement.prefill.replicas: Invalid value: 0"),
    ({"placement": SHAPE | {"decode": {"tp": 0}}}, "spec.placement.decode.tp: Invalid value: 0"),
    ({"placement": SHAPE | {"type": "Magic"}}, 'spec.placement.type: Unsupported value: "Magic"'),
    ({"gateway": {"port": 0}}, "spec.gateway.port: Invalid value: 0"),
    ({"gateway": {"replicas": -1}}, "spec.gateway.replicas: Invalid value: -1"),
]


def test_every_malformed_resource_is_refused_with_field_value_and_fix(rest: Rest) -> None:
    for changes, text in REFUSED:
        spec = {"model": MODEL, "cluster": CPU, "placement": SHAPE} | copy.deepcopy(changes)
        refused = rest.try_create("distservedeployments", "default", manifest(spec), dryRun="All")
        assert refused.status_code == 422, changes
        assert text in refused.json()["message"].replace("\\", ""), changes


def test_kubectl_shows_what_is_wrong(namespace: Namespace) -> None:
    """One of the above as a user sees it."""
    wrong = yaml.safe_dump(manifest({"model": MODEL, "cluster": CPU | {"maxDevices": 1}, "placement": SHAPE}))
    done = namespace.try_kubectl("apply", "-f", "-", stdin=wrong)
    assert done.returncode != 0
    assert "placement takes 2 devices" in done.stderr


def test_defaults_are_filled_in_by_the_server(rest: Rest) -> None:
    written = manifest({"model": MODEL, "cluster": CPU, "placement": {"prefill": {}, "decode": {}}})
    spec = rest.create("distservedeployments", "default", written, dryRun="All")["spec"]
    assert spec["model"]["dtype"] == "BF16"
    assert spec["cluster"]["memoryPerDevice"] == "4Gi"
    assert spec["placement"] == {
        "type": "Manual",
        "prefill": {"tp": 1, "pp": 1, "replicas": 1},
        "decode": {"tp": 1, "pp": 1, "replicas": 1},
    }
    assert spec["gateway"] == {"replicas": 1, "port": 8000}
    colocated = manifest({"model": MODEL, "cluster": CPU, "placement": {"colocated": {}}})
    spec = rest.create("distservedeployments", "default", colocated, dryRun="All")["spec"]
    assert spec["placement"] == {"type": "Manual", "colocated": {"tp": 1, "pp": 1, "replicas": 1}}


def test_every_sample_is_accepted(namespace: Namespace) -> None:
    files = [f"--filename={sample}" for sample in SAMPLES]
    namespace.kubectl("create", "--dry-run=server", *files)


def test_all_our_pods_pass_restricted_pod_security(namespace: Namespace, rest: Rest) -> None:
    """B36: and the API server knows every field that is set."""
    where = namespace.name
    rest.merge(
        "namespaces", None, where, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    for account in ("chat-worker", "chat-gateway"):
        rest.create("serviceaccounts", where, {"metadata": {"name": account}})
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    several: dict[str, Any] = {"colocated": {"tp": 2, "pp": 2}, "max_devices": 4}
    hub = {"uri": "hf://o/n@main", "hub": {"tokenSecret": {"name": "hf"}, "cacheClaim": "downloads"}}
    bodies = [resource(), resource(uri="hf://o/n@main"), resource(model=hub), resource(**several)]
    for body in [*bodies, gpu_resource(), gpu_resource(device_type="L40S", **several)]:
        body["metadata"]["namespace"] = where
        fleet = placed(body)
        children = {child.kind: child.manifest for child in desired_children(fleet, SETTINGS)}
        for role in fleet.placement.shapes:
            rest.create("pods", where, build_worker_pod(fleet, worker_template(fleet, role, SETTINGS), 0, 0), **strict)
        template = children["Deployment"]["spec"]["template"]
        rest.create("pods", where, {"metadata": {"name": "gateway"}, "spec": template["spec"]}, **strict)
        for kind, child in children.items():
            rest.apply(f"{kind.lower()}s", where, dict(child), **strict)


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    kind = {"apiVersion": "distserve.io/v1alpha1", "kind": "DistServeDeployment"}
    return {**kind, "metadata": {"name": "x"}, "spec": spec}
