"""Pods have addresses of their own, Services lead to the ready ones, and the host can reach both."""

import socket
import subprocess
from collections.abc import Callable
from urllib.request import urlopen

import pytest
from distserve_testing.clusters import Manifest, Namespace, make_pod, until

from distserve_devcluster.cluster import ClusterSpec
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.running import publish

pytestmark = pytest.mark.cluster

Make = Callable[..., Manifest]


def test_two_pods_listen_on_the_same_port_and_share_a_service(
    namespace: Namespace, web_server: Make, service: Make
) -> None:
    namespace.apply(service("web"), *(make_pod(name, web_server(), labels={"app": "web"}) for name in ("one", "two")))
    for name in ("one", "two"):
        namespace.wait_ready(name)
    address = namespace.get("service", "web")["spec"]["clusterIP"]
    script = f"""
import time, urllib.request
seen, deadline = set(), time.monotonic() + 20
while len(seen) < 2 and time.monotonic() < deadline:
    try:
        seen.add(urllib.request.urlopen("http://{address}/", timeout=5).read().decode())
    except OSError:
        time.sleep(0.1)
print(*sorted(seen))
"""
    assert namespace.run_script("client", script, "test/python:dev").split() == ["one", "two"]


def test_a_published_service_is_reached_from_the_host(
    namespace: Namespace, spec: ClusterSpec, web_server: Make, service: Make
) -> None:
    port = publish(spec.state, f"{namespace.name}/web:http", 0)
    assert publish(spec.state, f"{namespace.name}/web:http", port) == port
    assert publish(spec.state, f"{namespace.name}/web:http", 0) == port
    with pytest.raises(OSError, match=r"."):
        urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    namespace.apply(service("web"), make_pod("one", web_server(), labels={"app": "web"}))
    namespace.wait_ready("one")
    assert until(lambda: _get(port), "the Service answers on the host") == "one"


def test_a_port_that_is_taken_can_not_be_published(namespace: Namespace, spec: ClusterSpec) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DevClusterError, match=r"web: listen tcp4 .* address already in use"):
            publish(spec.state, f"{namespace.name}/web", port)
    with pytest.raises(DevClusterError, match=r"want NAMESPACE/SERVICE"):
        publish(spec.state, "web", 0)


def _get(port: int) -> str | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return None


def test_a_service_without_ready_endpoints_refuses_at_once(
    namespace: Namespace, web_server: Make, service: Make
) -> None:
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    server = web_server(readinessProbe=never)
    namespace.apply(service("web"), make_pod("one", server, labels={"app": "web"}))
    until(lambda: namespace.container_status("one").get("started"), "the pod runs")
    address = namespace.get("service", "web")["spec"]["clusterIP"]
    script = f"""
import socket
try:
    socket.create_connection(("{address}", 80), timeout=20)
except ConnectionRefusedError:
    print("refused")
"""
    assert namespace.run_script("client", script, "test/python:dev").strip() == "refused"


def test_each_direction_of_a_connection_can_end_by_itself_and_nothing_is_held_back(
    namespace: Namespace, spec: ClusterSpec, service: Make
) -> None:
    script = """
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.request.sendall(b"first")
        try:
            received = self.rfile.read()
        except ConnectionResetError:  # the probe goes without listening
            return
        self.request.sendall(b" then " + received)
socketserver.ThreadingTCPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    container = {
        "name": "main",
        "image": "test/python:dev",
        "command": ["python", "-c", script],
        "readinessProbe": probe,
    }
    namespace.apply(service("echo"), make_pod("echo", container, labels={"app": "echo"}))
    namespace.wait_ready("echo")
    port = publish(spec.state, f"{namespace.name}/echo", 0)
    with until(lambda: _connect_and_hear(port), "the first bytes come before anything is sent") as client:
        client.sendall(b"all of it")
        client.shutdown(socket.SHUT_WR)
        assert client.makefile("rb").read() == b" then all of it"


def _connect_and_hear(port: int) -> socket.socket | None:
    try:
        client = socket.create_connection(("127.0.0.1", port), timeout=20)
    except ConnectionResetError:
        return None
    try:
        if client.recv(5) == b"first":
            return client
    except ConnectionResetError:
        pass
    client.close()
    return None


def test_pods_reach_the_api_server_with_their_token_and_only_with_their_rights(namespace: Namespace) -> None:
    namespace.kubectl("create", "role", "reader", "--verb=list", "--resource=pods")
    namespace.kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace.name}:default")
    script = f"""
import json, os, ssl, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
base = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
for path in ("pods", "secrets"):
    url = base + "/api/v1/namespaces/{namespace.name}/" + path
    request = urllib.request.Request(url, headers={{"Authorization": "Bearer " + open(folder + "token").read()}})
    try:
        print(json.load(urllib.request.urlopen(request, context=context, timeout=20))["kind"])
    except urllib.error.HTTPError as error:
        print(error.code)
"""
    assert namespace.run_script("client", script, "test/python:dev").split() == ["PodList", "403"]


def test_a_pod_on_the_nodes_network_keeps_its_sandbox(namespace: Namespace, web_server: Make) -> None:
    namespace.apply(make_pod("host", web_server(), hostNetwork=True))
    ready = namespace.wait_ready("host")
    assert ready["status"]["podIP"] == ready["status"]["hostIP"] == "10.200.1.1"


def test_port_forward_reaches_a_port_of_the_pods_loopback(namespace: Namespace) -> None:
    script = """
import socket
server = socket.create_server(("127.0.0.1", 9000))
while True:
    client, _ = server.accept()
    client.sendall(b"inside")
    client.close()
"""
    probe = {"exec": {"command": ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9000))"]}}
    container = {
        "name": "main",
        "image": "test/python:dev",
        "command": ["python", "-c", script],
        "readinessProbe": probe,
    }
    namespace.apply(make_pod("inner", container))
    namespace.wait_ready("inner")
    command = [str(namespace.cluster.kubectl), "--kubeconfig", str(namespace.cluster.kubeconfig), "-n", namespace.name]
    with subprocess.Popen(
        [*command, "port-forward", "pod/inner", ":9000"], stdout=subprocess.PIPE, text=True
    ) as forward:
        try:
            assert forward.stdout is not None
            port = int(forward.stdout.readline().split(":")[1].split()[0])
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                assert client.makefile("rb").read() == b"inside"
        finally:
            forward.terminate()
