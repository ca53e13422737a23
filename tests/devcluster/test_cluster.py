"""A running cluster can be found, asked and described."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from distserve_testing.clusters import Namespace, make_pod, until

from distserve_devcluster.cluster import Cluster, ClusterSpec
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.running import status, up

pytestmark = pytest.mark.cluster


def test_the_node_is_ready_and_offers_the_machine_and_the_gpus(namespace: Namespace) -> None:
    (node,) = namespace.list("nodes")
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert node["metadata"]["name"] == "distserve-node-0"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert int(node["status"]["capacity"]["cpu"]) >= 1


def test_up_finds_the_running_cluster_again(cluster: Cluster, spec: ClusterSpec) -> None:
    said: list[str] = []
    again = up(spec, said.append)
    assert again.api_server == cluster.api_server
    assert not said


def test_up_refuses_to_change_a_running_cluster(cluster: Cluster, spec: ClusterSpec) -> None:
    other = ClusterSpec(
        name=cluster.name, state_folder=spec.state_folder, models=spec.models, gpus=7, images=spec.images
    )
    with pytest.raises(DevClusterError, match="gpus 4, not 7"):
        up(other)


@pytest.mark.usefixtures("cluster")
def test_status_names_every_component_and_the_hosts_process_ids(spec: ClusterSpec) -> None:
    found = status(spec.state)
    assert found is not None
    names = {each.name for each in found.components}
    assert names == {
        "etcd", "kube-apiserver", "service-proxy", "kube-controller-manager", "kube-scheduler", "node-0",
    }  # fmt: skip
    for component in found.components:
        assert component.running
        assert _command_line(component.pid)


def test_status_on_the_command_line_is_json(cluster: Cluster, spec: ClusterSpec) -> None:
    assert spec.state_folder is not None
    named = {"DISTSERVE_STATE": str(spec.state_folder.parent), "PATH": "/usr/bin:/bin:/usr/local/go/bin"}
    command = [sys.executable, "-m", "distserve_cli", "dev", "status", "-o", "json", "--name", spec.state_folder.name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env={**_home(), **named})
    described = json.loads(done.stdout)
    assert described["running"] is True
    assert described["apiServer"] == cluster.api_server
    assert described["kubectl"] == str(cluster.kubectl)


def test_an_unknown_image_is_refused_with_the_known_ones(namespace: Namespace) -> None:
    namespace.apply(make_pod("unknown", {"name": "main", "image": "nobody/knows:this"}))

    def reason() -> str | None:
        waiting = namespace.container_status("unknown").get("state", {}).get("waiting", {})
        return waiting.get("message") if waiting.get("reason") == "ErrImagePull" else None

    message = until(reason, "the image is refused")
    assert '"nobody/knows:this" is not known' in message
    assert "test/python:dev, test/shell:dev" in message


def test_role_based_access_is_enforced(namespace: Namespace) -> None:
    user = f"system:serviceaccount:{namespace.name}:default"
    refused = namespace.try_kubectl("get", "pods", "--as", user)
    assert refused.returncode != 0
    assert "Forbidden" in refused.stderr
    namespace.kubectl("create", "role", "reader", "--verb=list", "--resource=pods")
    namespace.kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace.name}:default")
    namespace.kubectl("get", "pods", "--as", user)


def test_restricted_pod_security_is_enforced(
    namespace: Namespace, web_server: Callable[..., dict[str, object]]
) -> None:
    namespace.kubectl("label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
    refused = namespace.try_kubectl("run", "plain", "--image=test/python:dev")
    assert "violates PodSecurity" in refused.stderr
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    user = {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    namespace.apply(make_pod("restricted", web_server(securityContext=security), securityContext=user))
    namespace.wait_ready("restricted")


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _home() -> dict[str, str]:
    return {key: os.environ[key] for key in ("HOME", "XDG_CACHE_HOME") if key in os.environ}
