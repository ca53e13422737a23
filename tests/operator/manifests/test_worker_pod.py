"""Worker pods: the same for both roles, and exactly what their fleet needs."""

from dataclasses import replace
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment, gpu_resource, placed, workloads

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.devices import DeviceType
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.worker_pod import DRAIN_SECONDS, build_worker_pod
from distserve_operator.manifests.worker_template import worker_template
from distserve_operator.names import identity_of
from distserve_operator.observed.images import read_image
from distserve_operator.observed.pods import identity_labels
from distserve_proto.contract import LABEL_DEPLOYMENT, Role

ROLES = [Role.PREFILL, Role.DECODE]
roles = pytest.mark.parametrize("role", ROLES)
gpu_types = pytest.mark.parametrize("device_type", [str(each) for each in DeviceType if each is not DeviceType.CPU])


def pod_of(fleet: DistServeDeployment, role: Role, settings: WorkloadSettings = SETTINGS) -> dict[str, Any]:
    return build_worker_pod(fleet, worker_template(fleet, role, settings), instance=0, attempt=0)


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    container = pod["spec"]["containers"][0]
    assert isinstance(container, dict)
    return container


def environment_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container_of(pod)["env"]}


@roles
def test_settings_reach_every_role(role: Role) -> None:
    """B33."""
    settings = workloads("r/w:9", pull_policy="Always", pull_secrets=("one", "two"))
    pod = pod_of(deployment(), role, settings)
    assert container_of(pod)["image"] == "r/w:9"
    assert container_of(pod)["imagePullPolicy"] == "Always"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert read_image(pod["metadata"]) == settings.worker
    assert pod["spec"]["serviceAccountName"] == "chat-worker"
    assert pod["spec"]["automountServiceAccountToken"] is False


@roles
def test_a_pod_fits_the_restricted_pod_security_standard(role: Role) -> None:
    """B36."""
    pod = pod_of(deployment(), role)
    security = container_of(pod)["securityContext"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["runAsUser"] > 0
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    allowed = {"emptyDir", "persistentVolumeClaim", "name"}
    assert all(set(volume) <= allowed for volume in pod["spec"]["volumes"])


@roles
def test_a_cpu_fleet_asks_for_cores_and_memory_and_no_gpu(role: Role) -> None:
    """B34."""
    pod = pod_of(deployment(cluster={"coresPerDevice": 3}), role)
    assert "--device=cpu" in container_of(pod)["args"]
    asked = {"cpu": "3", "memory": "3072Mi"}
    assert container_of(pod)["resources"] == {"requests": asked, "limits": asked}
    assert "affinity" not in pod["spec"]


@roles
def test_threads_follow_the_cpu_request(role: Role) -> None:
    environment = environment_of(pod_of(deployment(), role))
    cores = {"resourceFieldRef": {"containerName": "worker", "resource": "requests.cpu"}}
    assert environment["DISTSERVE_THREADS"] == environment["OMP_NUM_THREADS"] == cores


@gpu_types
@roles
def test_a_gpu_fleet_asks_for_gpus_of_the_right_product(role: Role, device_type: str) -> None:
    pod = pod_of(placed(gpu_resource(device_type=device_type)), role)
    assert "--device=cuda" in container_of(pod)["args"]
    resources = container_of(pod)["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "1"}
    assert resources["requests"]["nvidia.com/gpu"] == "1"
    assert "cpu" in resources["requests"], "threads are pinned to it"
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((term,),) = [t["matchExpressions"] for t in required["nodeSelectorTerms"]]
    assert term["key"] == "nvidia.com/gpu.product"
    assert all(value.startswith("NVIDIA-") for value in term["values"])
    assert pod["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_another_resource_name_reaches_resources_and_toleration() -> None:
    pod = pod_of(placed(gpu_resource(cluster={"resourceName": "example.com/gpu"})), Role.DECODE)
    assert container_of(pod)["resources"]["limits"] == {"example.com/gpu": "1"}
    assert pod["spec"]["tolerations"][0]["key"] == "example.com/gpu"


@roles
def test_probes_ask_over_http_and_the_drain_fits_the_grace_period(role: Role) -> None:
    pod = pod_of(deployment(), role)
    container = container_of(pod)
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths["startupProbe"] == paths["readinessProbe"] == {"path": "/readyz", "port": "http"}
    assert paths["livenessProbe"] == {"path": "/healthz", "port": "http"}
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 1800
    assert pod["spec"]["terminationGracePeriodSeconds"] > DRAIN_SECONDS
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 9000, "data": 9001, "http": 9002}


@roles
@pytest.mark.parametrize(
    ("uri", "argument", "volume"),
    [
        (
            "pvc://models/a/b.gguf",
            "/models/a/b.gguf",
            {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        ),
        ("file:///data/m/b", "/models/b", {"name": "models", "hostPath": {"path": "/data/m"}}),
        ("hf://o/n@v1", "hf://o/n@v1", {"name": "cache", "emptyDir": {}}),
    ],
)
def test_each_kind_of_source_is_mounted(role: Role, uri: str, argument: str, volume: dict[str, Any]) -> None:
    pod = pod_of(deployment(uri=uri), role)
    container = container_of(pod)
    assert f"--model={argument}" in container["args"]
    assert volume in pod["spec"]["volumes"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == volume["name"]]
    assert mount.get("readOnly", False) is (volume["name"] == "models")


def test_a_dollar_in_a_path_is_not_expanded() -> None:
    assert "--model=/models/a$$(HOME)" in container_of(pod_of(deployment(uri="pvc://m/a$(HOME)"), Role.PREFILL))["args"]


@roles
def test_name_labels_and_owner_belong_together(role: Role) -> None:
    pod = pod_of(deployment("x" * 200), role)
    metadata = pod["metadata"]
    identity = identity_of(metadata["name"])
    assert identity is not None
    assert identity_labels(identity).items() <= metadata["labels"].items()
    assert len(metadata["labels"][LABEL_DEPLOYMENT]) <= 63
    (owner,) = metadata["ownerReferences"]
    assert owner["name"] == "x" * 200
    assert owner["controller"] is True
    (spread,) = pod["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= metadata["labels"].items()


def test_an_absent_length_stays_absent() -> None:
    fleet = deployment()
    fleet = replace(fleet, model=replace(fleet.model, max_model_length=None))
    assert not any("--max-model-length" in argument for argument in container_of(pod_of(fleet, Role.PREFILL))["args"])
