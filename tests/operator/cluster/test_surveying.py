"""Free devices as a real API server tells of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from distserve_testing.clusters import Namespace, until
from distserve_testing.deployments import UID, auto_resource, gpu_resource
from distserve_testing.rest import Rest
from kubernetes.aio import client, config

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.parsing import parse
from distserve_operator.cluster.requesting import Api
from distserve_operator.cluster.surveying import largest_node, survey
from distserve_operator.observed.nodes import Survey

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

GPU = "nvidia.com/gpu"
T = TypeVar("T")
NODE = "gpu-node"
OWNER = {"apiVersion": "distserve.io/v1alpha1", "kind": "DistServeDeployment", "name": "chat", "controller": True}


def wanted(device_type: str = "L40S", max_devices: int = 20) -> Wanted:
    auto = auto_resource()["spec"]
    sections = {name: auto[name] for name in ("slo", "workload", "placement")}
    memory = {"memoryPerDevice": "8Gi"}
    return parse(gpu_resource(device_type=device_type, max_devices=max_devices, cluster=memory, **sections))


def look(kubeconfig: Path, what: Wanted) -> Survey:
    return asyncio.run(asked(kubeconfig, what, survey))


def largest(kubeconfig: Path, what: Wanted) -> int | None:
    return asyncio.run(asked(kubeconfig, what, largest_node))


async def asked(kubeconfig: Path, what: Wanted, question: Callable[[Api, Wanted], Awaitable[T]]) -> T:
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as connection:
        return await question(Api(connection), what)


@pytest.fixture
def gpu_node(rest: Rest) -> Iterator[str]:
    """A node with four GPUs that nobody runs. Its taint keeps away the pods of everybody else's tests."""
    taints = [{"key": GPU, "effect": "NoSchedule"}]
    labels = {"nvidia.com/gpu.product": "NVIDIA-L40S"}
    rest.create("nodes", None, {"metadata": {"name": NODE, "labels": labels}, "spec": {"taints": taints}})
    allocatable = {"cpu": "32", "memory": "128Gi", "pods": "110", GPU: "4"}
    ready = {"type": "Ready", "status": "True", "reason": "Played", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
    rest.merge("nodes", None, NODE, {"status": status}, "status")
    yield NODE
    rest.delete("nodes", None, NODE)


def make_pod(rest: Rest, namespace: Namespace, name: str, gpus: int, **metadata: Any) -> None:
    """A pod that runs on the node."""
    asked = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
    main = {"name": "main", "image": "x", "resources": {"requests": asked, "limits": {GPU: str(gpus)}}}
    body = {"metadata": {"name": name, **metadata}, "spec": {"nodeName": NODE, "containers": [main]}}
    rest.create("pods", namespace.name, body)


def test_devices_that_others_hold_are_not_free_and_our_own_are(gpu_node: str, namespace: Namespace, rest: Rest) -> None:
    """B35."""
    access = namespace.cluster.kubeconfig
    until(lambda: look(access, wanted()) == Survey((4,)), "the new node is ready", 60)
    assert look(access, wanted(max_devices=3)) == Survey((3,))
    assert look(access, wanted("H200")) == Survey(())
    make_pod(rest, namespace, "theirs", 1)
    make_pod(rest, namespace, "ours", 2, ownerReferences=[OWNER | {"uid": UID}])
    assert look(access, wanted()) == Survey((3,))
    ended = {"status": {"phase": "Succeeded"}}
    rest.merge("pods", namespace.name, "theirs", ended, "status")
    assert look(access, wanted()) == Survey((4,))
    rest.merge("nodes", None, gpu_node, {"spec": {"unschedulable": True}})
    assert look(access, wanted()) == Survey(())


def test_the_size_of_a_node_counts_whoever_holds_its_devices(gpu_node: str, namespace: Namespace, rest: Rest) -> None:
    """B35."""
    access = namespace.cluster.kubeconfig
    make_pod(rest, namespace, "theirs", 3)
    rest.merge("nodes", None, gpu_node, {"spec": {"unschedulable": True}})
    assert largest(access, wanted()) == 4
    assert largest(access, wanted("H200")) is None, "there may be one some day"


def test_without_the_right_to_read_nodes_what_may_be_used_is_assumed(namespace: Namespace, tmp_path: Path) -> None:
    access = yaml.safe_load(namespace.cluster.kubeconfig.read_text())
    until(lambda: namespace.try_kubectl("get", "serviceaccount", "default").returncode == 0, "there is an account")
    access["users"][0]["user"] = {"token": namespace.kubectl("create", "token", "default").strip()}
    limited = tmp_path / "limited.kubeconfig"
    limited.write_text(yaml.safe_dump(access))
    assert look(limited, wanted()) == Survey((8, 8, 4), assumed=True)
    assert largest(limited, wanted()) is None
