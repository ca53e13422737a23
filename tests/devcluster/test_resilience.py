"""Programs of the cluster can be stopped and can die; containers and streams go on."""

import os
import signal
import socket
from collections.abc import Callable
from urllib.request import urlopen

import pytest
from distserve_testing.clusters import Manifest, Namespace, make_pod, until

from distserve_devcluster.cluster import ClusterSpec, Component
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.running import publish, set_component, status

pytestmark = pytest.mark.cluster


def component(spec: ClusterSpec, name: str) -> Component:
    found = status(spec.state)
    assert found is not None
    return next(each for each in found.components if each.name == name)


def answers(api_server: str) -> bool:
    host, port = api_server.removeprefix("https://").split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")  # without TLS: a running server says that it wants TLS
            return bool(connection.recv(1))
    except (ConnectionResetError, BrokenPipeError):  # may come while connecting, too
        return False


def test_the_api_server_can_be_stopped_and_started_while_services_go_on(
    namespace: Namespace, spec: ClusterSpec, web_server: Callable[..., Manifest], service: Callable[..., Manifest]
) -> None:
    namespace.apply(service("web"), make_pod("one", web_server(), labels={"app": "web"}))
    namespace.wait_ready("one")
    port = publish(spec.state, f"{namespace.name}/web", 0)
    assert answers(namespace.cluster.api_server)
    set_component(spec.state, "kube-apiserver", "stop")
    try:
        assert not component(spec, "kube-apiserver").running
        assert not answers(namespace.cluster.api_server)
        with urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            assert answer.read() == b"one"
    finally:
        set_component(spec.state, "kube-apiserver", "start")
    until(lambda: namespace.try_kubectl("get", "pods").returncode == 0, "the API server answers again")
    namespace.apply(make_pod("two", web_server(), labels={"app": "web"}))
    # the scheduler and the kubelet come back with growing pauses of up to half a minute each
    namespace.wait_ready("two", 180)
    assert namespace.container_status("one")["restartCount"] == 0


def test_a_restarted_node_finds_its_containers_again(namespace: Namespace, spec: ClusterSpec) -> None:
    script = {"name": "main", "image": "test/shell:dev", "args": ["echo begun; sleep 1000"]}
    namespace.apply(make_pod("stays", script), make_pod("ends", {**script, "args": ["sleep 1001"]}))
    for name in ("stays", "ends"):
        namespace.wait_ready(name)
    found = status(spec.state)
    assert found is not None
    before = {name: found.container(namespace.name, name).pid for name in ("stays", "ends")}
    set_component(spec.state, "node-0", "stop")
    os.kill(before["ends"], signal.SIGKILL)
    set_component(spec.state, "node-0", "start")
    until(lambda: namespace.container_status("ends")["restartCount"] == 1, "the node notices what ended meanwhile")
    assert namespace.container_status("stays")["restartCount"] == 0
    again = status(spec.state)
    assert again is not None
    assert again.container(namespace.name, "stays").pid == before["stays"]
    assert namespace.kubectl("logs", "stays") == "begun\n"
    assert namespace.kubectl("exec", "stays", "--", "echo", "reached") == "reached\n"


@pytest.mark.parametrize("name", ["kube-controller-manager", "service-proxy", "node-0", "etcd", "kube-apiserver"])
def test_a_component_that_dies_is_started_again(namespace: Namespace, spec: ClusterSpec, name: str) -> None:
    before = component(spec, name)
    os.kill(before.pid, signal.SIGKILL)
    until(lambda: component(spec, name).pid not in {0, before.pid}, f"{name} runs again")
    until(lambda: namespace.try_kubectl("get", "pods").returncode == 0, "the API server answers")


@pytest.mark.usefixtures("cluster")
def test_an_unknown_component_is_refused_with_the_known_ones(spec: ClusterSpec) -> None:
    with pytest.raises(DevClusterError, match=r"no component \"kubelet\"; there are \[etcd "):
        set_component(spec.state, "kubelet", "stop")
