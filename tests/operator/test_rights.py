"""With the rights that the chart gives it, and no others, the operator does all it has to."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from distserve_testing.clusters import Namespace, until
from distserve_testing.deployments import ROOT
from distserve_testing.operator_process import Fleet, OperatorProcess

from distserve_devcluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

Deploy = Callable[..., Fleet]
CHART = str(ROOT / "helm" / "distserve")


def helm(cluster: Cluster, *arguments: str) -> str:
    command = [str(cluster.helm), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def limited(cluster: Cluster, namespace: Namespace, tmp_path: Path) -> Iterator[Namespace]:
    """The namespace with the rights of the operator of a chart that serves only it.

    The custom resource has been applied before with kubectl, as the chart's documentation says.
    """
    where = ["--namespace", namespace.name]
    only = [f"--set=watchNamespaces={{{namespace.name}}}", f"--set=fullnameOverride={namespace.name}"]
    helm(cluster, "install", "distserve", CHART, *where, *only, "--set=crds.install=false", "--set=image.tag=dev")
    token = namespace.kubectl("create", "token", namespace.name).strip()
    access = yaml.safe_load(cluster.kubeconfig.read_text())
    access["users"][0]["user"] = {"token": token}
    path = tmp_path / "limited.kubeconfig"
    path.write_text(yaml.safe_dump(access))
    yield replace(namespace, cluster=replace(cluster, kubeconfig=path))
    helm(cluster, "uninstall", "distserve", *where)
    namespace.kubectl("get", "crd", "distservedeployments.distserve.io")


def test_the_charts_rights_are_enough_and_not_more(limited: Namespace, deploy: Deploy, tmp_path: Path) -> None:
    process = OperatorProcess(limited, tmp_path / "operator.log", cluster_role=f"{limited.name}-gateway")
    try:
        process.start()
        chat = deploy()
        names = chat.wait_names("chat-decode", "chat-prefill")
        chat.become_ready()
        chat.namespace.kubectl("delete", "rolebinding,service", "-l", "distserve.io/deployment=chat")
        until(lambda: len(chat.children("rolebindings", "services")) == 2, "both are back", 30)
        chat.set_status(names[0], {"phase": "Failed", "reason": "Evicted"})
        chat.wait_names("chat-decode", "chat-prefill")
        chat.become_ready()
        chat.wait_told("PodCreated")
    finally:
        process.close()
        print(process.log.read_text())
    for verb, resource in (
        ("get", ["secrets"]),
        ("create", ["clusterrolebindings"]),
        ("bind", ["clusterroles/cluster-admin"]),
        ("update", ["distservedeployments"]),
        ("list", ["nodes"]),
        ("create", ["pods", "--subresource=exec"]),
    ):
        assert limited.try_kubectl("auth", "can-i", verb, *resource).stdout.strip() == "no", (verb, resource)
    assert limited.try_kubectl("auth", "can-i", "list", "pods", "-n", "kube-system").stdout.strip() == "no"


def test_the_check_of_helm_test_finds_all_rights_or_names_what_is_missing(limited: Namespace, cluster: Cluster) -> None:
    role = limited.name
    good, said = run_check(limited, role)
    assert good == 0, said
    assert "all rights are there" in said
    admin = Namespace(cluster, role)
    patch = [{"op": "replace", "path": "/rules/3/verbs", "value": ["get", "list", "watch"]}]
    admin.kubectl("patch", "clusterrole", role, "--type=json", f"--patch={json.dumps(patch)}")
    bad, said = run_check(limited, role)
    assert bad == 1
    assert f"may not create pods in {role}" in said


def run_check(namespace: Namespace, role: str) -> tuple[int, str]:
    arguments = ["--check", f"--namespace={namespace.name}", f"--gateway-cluster-role={role}-gateway"]
    images = ["--worker-image=x", "--gateway-image=x"]
    done = subprocess.run(
        [sys.executable, "-m", "distserve_operator", *arguments, *images],
        env={"KUBECONFIG": str(namespace.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr
