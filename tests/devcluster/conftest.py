"""One local cluster for all tests of this folder, and a namespace of its own for each test."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distserve_testing.clusters import Manifest, Namespace, until

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.images import Image, python_image
from distserve_devcluster.running import down, up

IMAGES = {"test/python:dev": python_image(), "test/shell:dev": Image(entrypoint=("/bin/sh", "-c"))}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pods see in the claim `models`."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "weights.gguf").write_text("some weights")
    return folder


@pytest.fixture(scope="session")
def make_spec(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Callable[[int], ClusterSpec]:
    """Specifications of clusters of this test run only; the argument is the number of pretended GPUs."""

    def make(gpus: int = 0) -> ClusterSpec:
        name = f"test-{uuid.uuid4().hex[:8]}"
        folder = tmp_path_factory.mktemp(name)
        images = {**IMAGES, "test/paths:dev": Image(entrypoint=("/bin/sh", "-c"), paths=(models,))}
        return ClusterSpec(
            name=name, state_folder=folder, images=images, models=models, gpus=gpus, ends_with_starter=True
        )

    return make


@pytest.fixture(scope="session")
def spec(make_spec: Callable[[int], ClusterSpec]) -> ClusterSpec:
    """The specification of the shared cluster, which pretends to have four GPUs."""
    return make_spec(4)


@pytest.fixture(scope="session")
def cluster(spec: ClusterSpec) -> Iterator[Cluster]:
    """The shared cluster."""
    try:
        yield up(spec, print)
    finally:
        down(spec.state)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace that is deleted after the test."""
    name = f"n-{uuid.uuid4().hex[:8]}"
    created = Namespace(cluster, name)
    created.kubectl("create", "namespace", name)
    until(
        lambda: created.try_kubectl("get", "serviceaccount", "default").returncode == 0, "the service account is made"
    )
    yield created
    created.kubectl("delete", "namespace", name, "--wait=false")
    created.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")


@pytest.fixture
def web_server() -> Callable[..., Manifest]:
    """A container that answers every GET with the name of its pod, and its readiness probe."""
    script = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["HOSTNAME"].encode())
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""

    def make(**fields: object) -> Manifest:
        probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
        base: Manifest = {"name": "main", "image": "test/python:dev", "command": ["python", "-c", script]}
        return {**base, "readinessProbe": probe, **fields}

    return make


@pytest.fixture
def service() -> Callable[[str], Manifest]:
    """A Service `name` for the pods labelled app=`name`: port 80 leads to 8080."""

    def make(name: str) -> Manifest:
        manifest = """{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "NAME"},
          "spec": {"selector": {"app": "NAME"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}"""
        made: Manifest = json.loads(manifest.replace("NAME", name))
        return made

    return make
