"""One cluster with the chart installed and SmolLM2 deployed, shared by all tests of this folder.

It is a local one, unless DISTSERVE_E2E_KUBECONFIG names the kubeconfig of another: see docs/devcluster.md.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployed import Deployed, Reach, Victim
from distserve_testing.other_clusters import OTHER_CLUSTER, other_cluster, other_kubeconfig
from distserve_testing.readme import on_a_cluster, pushed_images, run_readme

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.images import default_images
from distserve_devcluster.running import down, up
from distserve_devcluster.weights import fetch_weights

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "docs/samples/smollm2.yaml"


@pytest.fixture(scope="package")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ClusterSpec:
    """A local cluster of this test run only; who asks for it kills processes or stops components."""
    if other_kubeconfig() is not None:
        pytest.skip(f"kills or stops parts of the cluster: needs the local one, so a run without {OTHER_CLUSTER}")
    name = f"e2e-{os.getpid()}"
    folder, images = tmp_path_factory.mktemp(name), pushed_images(default_images())
    return ClusterSpec(name=name, state_folder=folder, ends_with_starter=True, images=images)


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster, with the chart installed as the README says."""
    kubeconfig = other_kubeconfig()
    if kubeconfig is None:
        yield from local_cluster(request.getfixturevalue("spec"))
    else:
        yield other_cluster(kubeconfig)


def local_cluster(spec: ClusterSpec) -> Iterator[Cluster]:
    """Started for this test run, and ended with it."""
    fetch_weights(print)
    try:
        cluster = up(spec, print)
        run_readme(on_a_cluster()[0], cluster)
        yield cluster
    finally:
        down(spec.state)


@pytest.fixture(scope="package")
def reach(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Reach]:
    """Finds a deployment of the namespace `default` and makes its endpoint reachable from here."""
    if other_kubeconfig() is None:
        state = request.getfixturevalue("spec").state
        yield lambda name: Deployed.publish(cluster, state, "default", name)
        return
    with ExitStack() as forwards:
        yield lambda name: forwards.enter_context(Deployed.forward(cluster, "default", name))


@pytest.fixture(scope="package")
def smollm2(cluster: Cluster, reach: Reach) -> Iterator[Deployed]:
    """The sample deployment; one that was there before stays."""
    default = Namespace(cluster, "default")
    found = default.try_kubectl("get", "distservedeployment", "smollm2").returncode == 0
    default.kubectl("apply", "-f", str(SAMPLE))
    try:
        deployed = reach("smollm2")
        deployed.wait_condition("Ready", "True")
        yield deployed
    finally:
        if not found:
            default.kubectl("delete", "--wait=false", "-f", str(SAMPLE))


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
