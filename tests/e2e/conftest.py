"""One local cluster with the chart installed and SmolLM2 deployed, shared by all tests of this folder."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployed import Deployed, Victim

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.running import down, up
from distserve_devcluster.weights import fetch_weights

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "docs/samples/smollm2.yaml"


@pytest.fixture(scope="session")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ClusterSpec:
    """A cluster of this test run only."""
    name = f"e2e-{os.getpid()}"
    return ClusterSpec(name=name, state_folder=tmp_path_factory.mktemp(name), ends_with_starter=True)


@pytest.fixture(scope="session")
def cluster(spec: ClusterSpec) -> Iterator[Cluster]:
    """The cluster, with the chart installed as the README says."""
    fetch_weights(print)
    try:
        cluster = up(spec, print)
        chart = ["upgrade", "--install", "distserve", str(ROOT / "helm/distserve")]
        where = ["--namespace", "distserve-system", "--create-namespace", "--wait", "--timeout", "120s"]
        command = [str(cluster.helm), "--kubeconfig", str(cluster.kubeconfig), *chart, *where]
        subprocess.run(command, check=True, timeout=180, stdout=subprocess.DEVNULL)
        yield cluster
    finally:
        down(spec.state)


@pytest.fixture(scope="session")
def smollm2(cluster: Cluster, spec: ClusterSpec) -> Deployed:
    """The sample deployment."""
    Namespace(cluster, "default").kubectl("apply", "-f", str(SAMPLE))
    deployed = Deployed.reach(cluster, spec.state, "default", "smollm2")
    deployed.wait_condition("Ready", "True")
    return deployed


@pytest.fixture
def deployed(smollm2: Deployed) -> Deployed:
    """The sample deployment, Ready and serving at the start of each test, and holding nothing at its end."""
    smollm2.wait_condition("Ready", "True")
    smollm2.wait_serving()
    return smollm2


@pytest.fixture
def operator(cluster: Cluster, spec: ClusterSpec) -> Victim:
    """The operator's pod."""
    namespace = Namespace(cluster, "distserve-system")
    (pod,) = namespace.list("pods")
    return Victim(namespace, spec.state, pod["metadata"]["name"])
