"""Following pods through a real API server; its node takes no pods, the tests play the kubelet."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from distserve_testing.clusters import Namespace, until

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.running import down, set_component, up
from distserve_worker.gateway.discovery.watching import PodWatch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

READY = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ClusterSpec:
    name = f"gateway-{os.getpid()}"
    return ClusterSpec(name=name, state_folder=tmp_path_factory.mktemp(name), ends_with_starter=True)


@pytest.fixture(scope="module")
def namespace(spec: ClusterSpec) -> Iterator[Namespace]:
    try:
        cluster: Cluster = up(spec, print)
        default = Namespace(cluster, "default")
        default.kubectl("cordon", "distserve-node-0")
        until(lambda: default.try_kubectl("get", "serviceaccount", "default").returncode == 0, "pods can be made")
        yield default
    finally:
        down(spec.state)


class Following:
    """The instances that discovery knows at the moment."""

    def __init__(self) -> None:
        self.instances: set[str] = set()

    async def until(self, *expected: str) -> None:
        """Wait until exactly these are known."""
        await asyncio.to_thread(until, lambda: self.instances == set(expected), f"{expected} are known")


@pytest.fixture
async def following(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Following]:
    monkeypatch.setenv("KUBECONFIG", str(namespace.cluster.kubeconfig))
    known = Following()

    def found(targets: Any) -> None:
        known.instances = {target.instance for target in targets}

    task = asyncio.create_task(PodWatch("chat", "default", found).run())
    yield known
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    namespace.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


def _create(namespace: Namespace, name: str, deployment: str = "chat", **status: Any) -> None:
    labels = {"distserve.io/deployment": deployment, "distserve.io/role": "prefill", "distserve.io/segment": "0"}
    container = {"name": "worker", "image": "distserve/worker:dev"}
    metadata = {"name": name, "labels": labels}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    _set_status(namespace, name, **READY | status)


def _set_status(namespace: Namespace, name: str, **status: Any) -> None:
    patch = json.dumps({"status": status})
    namespace.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "--patch", patch)


async def test_pods_come_and_go_with_their_readiness(namespace: Namespace, following: Following) -> None:
    """B18 and B20: pods of another deployment are never seen."""
    _create(namespace, "other", deployment="another")
    _create(namespace, "a")
    await following.until("a")
    _create(namespace, "b")
    await following.until("a", "b")
    _set_status(namespace, "a", conditions=[{"type": "Ready", "status": "False"}])
    await following.until("b")
    _set_status(namespace, "a", **READY)
    await following.until("a", "b")
    namespace.kubectl("delete", "pod", "b", "--wait=false")
    await following.until("a")


async def test_workers_stay_known_while_the_api_server_is_away_and_change_after_it(
    namespace: Namespace, following: Following, spec: ClusterSpec
) -> None:
    """B19."""
    _create(namespace, "a")
    await following.until("a")
    await asyncio.to_thread(set_component, spec.state, "kube-apiserver", "stop")
    assert following.instances == {"a"}
    await asyncio.to_thread(set_component, spec.state, "kube-apiserver", "start")
    await asyncio.to_thread(
        until, lambda: namespace.try_kubectl("get", "--raw", "/readyz").returncode == 0, "the API server answers"
    )
    assert following.instances == {"a"}
    _create(namespace, "b")
    namespace.kubectl("delete", "pod", "a", "--force", "--grace-period=0")
    await following.until("b")
