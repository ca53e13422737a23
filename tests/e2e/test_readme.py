"""The commands of the README's chapter "On a cluster" do what it says; its first half has installed the chart here."""

import pytest
from distserve_testing.clusters import Namespace
from distserve_testing.deployed import Deployed
from distserve_testing.readme import on_a_cluster, run_readme

from distserve_devcluster.cluster import Cluster, ClusterSpec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_the_chart_runs_the_images_that_were_pushed(cluster: Cluster, spec: ClusterSpec, deployed: Deployed) -> None:
    """B36."""
    pods = [*Namespace(cluster, "distserve-system").list("pods"), *deployed.namespace.list("pods")]
    used = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert used == set(spec.images)
    assert all(image.startswith("registry.example.com/team/") for image in used)


def test_a_deployment_is_applied_awaited_and_shown(cluster: Cluster, deployed: Deployed) -> None:
    """Left out: the download from the hub, as what runs already has the sample's name, and the endless last line."""
    *lines, forward = on_a_cluster()[1].splitlines()
    assert lines[0] == "kubectl apply -f docs/samples/smollm2-hub.yaml"
    assert forward.startswith(f"kubectl port-forward service/{deployed.name} 8000 ")
    printed = run_readme("\n".join([f"{lines[0]} --dry-run=server", *lines[1:]]), cluster)
    assert "distservedeployment.distserve.io/smollm2 condition met" in printed
    assert "pod/smollm2-prefill-" in printed
    assert "AllReady" in printed
