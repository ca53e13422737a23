"""Worker pods: the same for every role, and exactly what their fleet needs."""

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
from distserve_proto.contract import LABEL_DEPLOYMENT, WORKER_ROLES, Role

roles = pytest.mark.parametrize("role", WORKER_ROLES)
gpu_types = pytest.mark.parametrize("device_type", [str(each) for each in DeviceType if each is not DeviceType.CPU])


def fleet_for(role: Role, name: str = "chat", **options: Any) -> DistServeDeployment:
    """A fleet with instances of `role`, of one device each unless `shape` says more."""
    shape = options.pop("shape", {})
    return deployment(name, max_devices=64, **{str(role): shape}, **options)


def gpu_fleet(role: Role, device_type: str = "H100-80GB", **options: Any) -> DistServeDeployment:
    """The same of GPUs."""
    return placed(gpu_resource(device_type=device_type, max_devices=64, **{str(role): options.pop("shape", {})}))


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
    pod = pod_of(fleet_for(role), role, settings)
    assert container_of(pod)["image"] == "r/w:9"
    assert container_of(pod)["imagePullPolicy"] == "Always"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert read_image(pod["metadata"]) == settings.worker
    assert pod["spec"]["serviceAccountName"] == "chat-worker"
    assert pod["spec"]["automountServiceAccountToken"] is False


@roles
def test_a_pod_fits_the_restricted_pod_security_standard(role: Role) -> None:
    """B36."""
    pod = pod_of(fleet_for(role), role)
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
    pod = pod_of(fleet_for(role, cluster={"coresPerDevice": 3}), role)
    assert {"--device=cpu", "--max-running=64"} <= set(container_of(pod)["args"])
    asked = {"cpu": "3", "memory": "3072Mi"}
    assert container_of(pod)["resources"] == {"requests": asked, "limits": asked}
    assert "affinity" not in pod["spec"]


@roles
def test_threads_follow_the_cpu_request(role: Role) -> None:
    environment = environment_of(pod_of(fleet_for(role), role))
    cores = {"resourceFieldRef": {"containerName": "worker", "resource": "requests.cpu"}}
    assert environment["DISTSERVE_THREADS"] == environment["OMP_NUM_THREADS"] == cores


@gpu_types
@roles
def test_a_gpu_fleet_asks_for_gpus_of_the_right_product(role: Role, device_type: str) -> None:
    pod = pod_of(gpu_fleet(role, device_type), role)
    assert {"--device=cuda", "--kv-cache-memory=auto", "--max-running=256"} <= set(container_of(pod)["args"])
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
def test_a_pod_of_several_ranks_has_the_devices_and_the_memory_of_all(role: Role) -> None:
    """B34: what is in /dev/shm counts, and has a limit within that of the pod."""
    pod = pod_of(fleet_for(role, shape={"tp": 3, "pp": 2}, cluster={"coresPerDevice": 2}), role)
    container = container_of(pod)
    asked = {"cpu": "12", "memory": f"{6 * 3072}Mi"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert {"--tp=3", "--pp=2", f"--kv-cache-memory={6 * 1024}Mi"} <= set(container["args"])
    assert pod["metadata"]["annotations"]["distserve.io/devices"] == "6"
    (shared,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "shm"]
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{6 * 64}Mi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]


@roles
def test_a_pod_of_one_rank_has_no_shared_memory(role: Role) -> None:
    """B34."""
    assert not [volume for volume in pod_of(fleet_for(role), role)["spec"]["volumes"] if volume["name"] == "shm"]


@pytest.mark.parametrize(("memory", "limit"), [("64Mi", "16Mi"), ("512Mi", "128Mi"), ("1Pi", "128Mi")])
def test_shared_memory_is_a_small_part_of_the_pods(memory: str, limit: str) -> None:
    """B34."""
    pod = pod_of(fleet_for(Role.PREFILL, shape={"tp": 2}, cluster={"memoryPerDevice": memory}), Role.PREFILL)
    (shared,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "shm"]
    assert shared["emptyDir"]["sizeLimit"] == limit


@roles
def test_a_pod_of_several_gpus_asks_for_all_of_them(role: Role) -> None:
    """B34."""
    pod = pod_of(gpu_fleet(role, shape={"tp": 4}), role)
    resources = container_of(pod)["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "4"}
    assert resources["requests"] == {"nvidia.com/gpu": "4", "cpu": "4", "memory": f"{4 * 3072}Mi"}
    (shared,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "shm"]
    assert shared["emptyDir"]["sizeLimit"] == "1024Mi"


@roles
def test_what_is_downloaded_may_be_kept_in_a_claim_and_with_a_token(role: Role) -> None:
    """B33."""
    hub = {"tokenSecret": {"name": "hf", "key": "k"}, "cacheClaim": "downloads"}
    pod = pod_of(fleet_for(role, model={"uri": "hf://a/b", "hub": hub}), role)
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "downloads"}} in pod["spec"]["volumes"]
    assert environment_of(pod)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "k"}}
    assert environment_of(pod)["HF_HOME"].startswith("/cache")
    assert pod["spec"]["securityContext"]["fsGroup"] == pod["spec"]["securityContext"]["runAsGroup"]
    alone = pod_of(fleet_for(role, uri="hf://a/b"), role)
    assert "fsGroup" not in alone["spec"]["securityContext"]
    assert "HF_TOKEN" not in environment_of(alone)


@roles
def test_probes_ask_over_http_and_the_drain_fits_the_grace_period(role: Role) -> None:
    pod = pod_of(fleet_for(role), role)
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
    pod = pod_of(fleet_for(role, uri=uri), role)
    container = container_of(pod)
    assert f"--model={argument}" in container["args"]
    assert volume in pod["spec"]["volumes"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == volume["name"]]
    assert mount.get("readOnly", False) is (volume["name"] == "models")


def test_a_dollar_in_a_path_is_not_expanded() -> None:
    assert "--model=/models/a$$(HOME)" in container_of(pod_of(deployment(uri="pvc://m/a$(HOME)"), Role.PREFILL))["args"]


@roles
def test_name_labels_and_owner_belong_together(role: Role) -> None:
    pod = pod_of(fleet_for(role, "x" * 200), role)
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
