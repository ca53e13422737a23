"""Whatever several of the operator's tests need; those with a cluster share one whose nodes take no pods."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployments import ROOT, resource, strict_schema
from distserve_testing.operator_process import Fleet, OperatorProcess
from distserve_testing.played_gateway import PlayedGateway
from distserve_testing.rest import Rest

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.running import down, up

Deploy = Callable[..., Fleet]


@pytest.fixture(scope="session")
def check_schema() -> Callable[[dict[str, Any]], None]:
    """Raises when a resource does not fit its schema."""
    validator = jsonschema.Draft202012Validator(strict_schema())
    return validator.validate


@pytest.fixture(scope="session")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ClusterSpec:
    """A cluster of this test run only."""
    name = f"operator-{os.getpid()}"
    return ClusterSpec(name=name, state_folder=tmp_path_factory.mktemp(name), ends_with_starter=True)


@pytest.fixture(scope="session")
def cluster(spec: ClusterSpec) -> Iterator[Cluster]:
    """A cluster with our custom resource. Its node takes no pods: tests play the kubelet."""
    try:
        cluster = up(spec, print)
        system = Namespace(cluster, "default")
        system.kubectl("apply", "-f", str(ROOT / "crds"))
        system.kubectl("wait", "--for=condition=Established", "crd/distservedeployments.distserve.io")
        system.kubectl("cordon", "distserve-node-0")
        yield cluster
    finally:
        down(spec.state)


@pytest.fixture(scope="session")
def rest(cluster: Cluster) -> Iterator[Rest]:
    """The API server, asked as its administrator."""
    client = Rest(cluster.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def namespace(cluster: Cluster, rest: Rest) -> Iterator[Namespace]:
    """A namespace of this test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    rest.create("namespaces", None, {"metadata": {"name": name}})
    yield Namespace(cluster, name)
    rest.delete("namespaces", None, name)


@pytest.fixture
def operator(namespace: Namespace, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of that namespace, not started yet."""
    process = OperatorProcess(namespace, tmp_path / "operator.log")
    try:
        yield process
    finally:
        process.close()
        print(process.log.read_text() if process.log.exists() else "the operator was never started")


@pytest.fixture
def gateway() -> Iterator[PlayedGateway]:
    """The gateway of every deployment of this test; it finds a usable pair unless the test says otherwise."""
    with PlayedGateway().running() as played:
        yield played


@pytest.fixture
def deploy(namespace: Namespace, rest: Rest, gateway: PlayedGateway) -> Deploy:
    """Create or change a deployment: `deploy("chat", prefill=2)`."""

    def apply(name: str = "chat", **options: Any) -> Fleet:
        body = resource(name, **options)
        body["metadata"] = {"name": name, "namespace": namespace.name}
        rest.apply("distservedeployments", namespace.name, body)
        return Fleet(rest, namespace, name, gateway)

    return apply
