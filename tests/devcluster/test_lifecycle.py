"""A cluster starts whole or not at all, and ends with everything in it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from distserve_testing.clusters import Namespace, make_pod, processes_of, survivors, until

from distserve_devcluster.claiming import claim
from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.running import down, status, up

pytestmark = pytest.mark.cluster

KEPT = {"logs", "lock", "change.lock"}

MakeSpec = Callable[[int], ClusterSpec]


def run_a_pod(cluster: Cluster) -> None:
    default = Namespace(cluster, "default")
    container = {"name": "main", "image": "test/shell:dev", "args": ["sleep 1000 & setsid sleep 1001 & wait"]}
    default.apply(make_pod("sleeper", container))
    default.wait_ready("sleeper")


def supervisor_of(cluster: Cluster) -> int:
    return processes_of(cluster)[0].pid


def test_two_clusters_run_side_by_side_and_one_ends_alone(cluster: Cluster, make_spec: MakeSpec) -> None:
    other = make_spec(0)
    second = up(other)
    try:
        run_a_pod(second)
        processes = processes_of(second)
        assert second.api_server != cluster.api_server
    finally:
        assert down(other.state)
    assert not survivors(processes)
    assert status(other.state) is None
    assert not down(other.state)
    assert Namespace(cluster, "default").try_kubectl("get", "nodes").returncode == 0


def test_killing_the_supervisor_leaves_no_process_and_the_next_start_is_clean(make_spec: MakeSpec) -> None:
    spec = make_spec(0)
    first = up(spec)
    try:
        run_a_pod(first)
        processes = processes_of(first)
        os.kill(supervisor_of(first), signal.SIGKILL)
        until(lambda: not survivors(processes), "every process of the cluster is gone")
        assert status(spec.state) is None
        again = up(spec)
        assert Namespace(again, "default").list("pods") == []
    finally:
        down(spec.state)


def test_a_start_that_fails_says_where_to_read_and_leaves_nothing(make_spec: MakeSpec) -> None:
    spec = make_spec(0)
    broken = replace(spec, nodes=0)
    with pytest.raises(DevClusterError, match=r"--nodes must be at least 1[\s\S]*supervisor\.log"):
        up(broken)
    assert status(spec.state) is None


def test_an_interrupted_start_leaves_nothing(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(0)
    script = f"""
from pathlib import Path
from distserve_devcluster.cluster import ClusterSpec
from distserve_devcluster.running import up
print("go", flush=True)
up(ClusterSpec(name="x", state_folder=Path({str(spec.state.path)!r}), models=Path({str(tmp_path)!r})), lambda _: None)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as starting:
        until(lambda: status(spec.state) is not None, "the supervisor listens")
        starting.send_signal(signal.SIGINT)
        starting.communicate(timeout=60)
    assert starting.returncode != 0
    assert status(spec.state) is None
    up(spec)
    down(spec.state)


def test_a_cluster_for_tests_ends_with_a_killed_test_process(make_spec: MakeSpec) -> None:
    spec = make_spec(0)
    script = f"""
import sys
from pathlib import Path
from distserve_devcluster.cluster import ClusterSpec
from distserve_devcluster.running import up
folder = Path({str(spec.state.path)!r})
up(ClusterSpec(name="x", state_folder=folder, models=folder / "models", ends_with_starter=True))
print("up", flush=True)
sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as starter:  # type: ignore[call-overload]
        assert starter.stdout.readline() == "up\n"
        found = status(spec.state)
        assert found is not None
        processes = processes_of(found)
        starter.kill()
        starter.wait()
    until(lambda: not survivors(processes), "every process of the cluster is gone")


def test_a_cluster_holds_its_programs_and_touches_nothing_that_others_put_into_its_folder(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec(0)
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "data").write_text("years of work")
    claim(spec.state)
    for name in ("etcd", "pki", "node-0", "lock-of-mine"):
        (spec.state.path / name).symlink_to(outside)
    (spec.state.path / "node-backup").mkdir()
    cluster = up(spec)
    try:
        for folder in (cluster.kubectl.parent, cluster.helm.parent):
            assert str(folder.stat().st_ino) in locks_of(supervisor_of(cluster))
    finally:
        down(spec.state)
    assert {path.name for path in spec.state.path.iterdir()} == {*KEPT, "lock-of-mine", "node-backup"}
    assert [path.name for path in outside.iterdir()] == ["data"]


def locks_of(pid: int) -> set[str]:
    """Inodes of the files on which the process has a shared lock."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {fields[5].rpartition(":")[2] for fields in lines if fields[1:5] == ["FLOCK", "ADVISORY", "READ", str(pid)]}


def test_a_supervisor_takes_no_folder_that_is_not_a_clusters(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    (tmp_path / "etcd" / "data").write_text("years of work")
    program = cluster.kubectl.parent / "devcluster"
    command = [str(program), "supervise", "--name=x", f"--state={tmp_path}", f"--models={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is no cluster's folder: it has no file change.lock" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["etcd", "data"]


def test_down_removes_the_state_and_keeps_the_logs(make_spec: MakeSpec) -> None:
    spec = make_spec(0)
    up(spec)
    down(spec.state)
    kept = {path.name for path in spec.state.path.iterdir()}
    assert kept == KEPT
    assert (spec.state.logs / "kube-apiserver.log").exists()
