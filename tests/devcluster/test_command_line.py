"""`distserve dev` answers with results on standard output and with errors that say what to do."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from distserve_cli.dev import dev
from distserve_devcluster.cluster import Cluster, Container


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSERVE_STATE", str(tmp_path))


def test_status_without_a_cluster_says_so_in_both_forms() -> None:
    assert CliRunner().invoke(dev, ["status"]).output == "no local cluster 'demo' runs\n"
    described = json.loads(CliRunner().invoke(dev, ["status", "--name", "other", "-o", "json"]).output)
    assert described == {"name": "other", "running": False}


def test_down_without_a_cluster_is_no_error() -> None:
    result = CliRunner().invoke(dev, ["down"])
    assert result.exit_code == 0
    assert "no cluster 'demo' was running" in result.output


@pytest.mark.parametrize(
    "arguments",
    [["kubectl", "get", "nodes"], ["helm", "list"], ["publish", "default/web"], ["component", "stop", "etcd"]],
)
def test_what_needs_a_cluster_says_how_to_start_one(arguments: list[str]) -> None:
    result = CliRunner().invoke(dev, arguments)
    assert result.exit_code == 1
    assert "distserve dev up" in result.output


def test_kill_wants_a_pod_and_a_signal() -> None:
    for arguments in (["only-a-name"], ["default/pod", "--signal", "NOTHING"]):
        result = CliRunner().invoke(dev, ["kill", *arguments])
        assert result.exit_code == 2
        assert "want NAMESPACE/POD and a signal name" in result.output


def test_a_container_is_found_by_its_pod_when_it_is_the_only_one() -> None:
    containers = tuple(Container("default", pod, name, 1) for pod, name in (("a", "x"), ("b", "x"), ("b", "y")))
    nowhere = Path("/nowhere")
    cluster = Cluster("demo", "ready", nowhere, "", nowhere, nowhere, nowhere, (), containers, ())
    assert cluster.container("default", "a").container == "x"
    assert cluster.container("default", "b", "y").container == "y"
    with pytest.raises(LookupError, match="running: x, y"):
        cluster.container("default", "b")
    with pytest.raises(LookupError, match="running: none"):
        cluster.container("default", "c")
