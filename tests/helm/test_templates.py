"""What the chart renders."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from distserve_testing.deployments import CRD, ROOT

from distserve_operator.arguments import parse_arguments
from distserve_operator.manifests.metadata import VERSION

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]
CHART = ROOT / "helm" / "distserve"


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def operator(manifests: list[Manifest]) -> Manifest:
    (deployment,) = of_kind(manifests, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def test_the_chart_is_clean(helm: Path) -> None:
    done = subprocess.run([str(helm), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_chart_has_the_products_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


def test_the_operator_understands_its_arguments(render: Render) -> None:
    found = parse_arguments(operator(render())["containers"][0]["args"])
    assert found.namespaces is None
    assert found.workloads.worker.image == f"distserve/worker:{VERSION}"
    assert found.workloads.gateway.image == f"distserve/gateway:{VERSION}"
    assert found.workloads.gateway_cluster_role == "distserve-gateway"
    assert found.health_port == 8080


def test_one_tag_serves_all_three_images_unless_they_have_their_own(render: Render) -> None:
    spec = operator(render(image={"tag": "dev"}, gateway={"image": {"tag": "other", "registry": "r.io"}}))
    found = parse_arguments(spec["containers"][0]["args"])
    assert spec["containers"][0]["image"] == "distserve/operator:dev"
    assert found.workloads.worker.image == "distserve/worker:dev"
    assert found.workloads.gateway.image == "r.io/distserve/gateway:other"


def test_a_digest_goes_before_a_tag(render: Render) -> None:
    digest = f"sha256:{'0' * 64}"
    found = parse_arguments(operator(render(worker={"image": {"digest": digest}}))["containers"][0]["args"])
    assert found.workloads.worker.image == f"distserve/worker@{digest}"


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        ({"nodeSelector": {"a": "b"}}, ["nodeSelector"], {"a": "b"}),
        ({"tolerations": [{"key": "x"}]}, ["tolerations"], [{"key": "x"}]),
        ({"affinity": {"nodeAffinity": {}}}, ["affinity"], {"nodeAffinity": {}}),
        ({"priorityClassName": "high"}, ["priorityClassName"], "high"),
        ({"imagePullSecrets": [{"name": "key"}]}, ["imagePullSecrets"], [{"name": "key"}]),
        ({"image": {"pullPolicy": "Always"}}, ["containers", 0, "imagePullPolicy"], "Always"),
        ({"resources": {"limits": {"cpu": 1}}}, ["containers", 0, "resources", "limits", "cpu"], 1),
        ({"extraEnv": [{"name": "A", "value": "b"}]}, ["containers", 0, "env", 2], {"name": "A", "value": "b"}),
        ({"serviceAccount": {"name": "other"}}, ["serviceAccountName"], "other"),
        ({"serviceAccount": {"create": False}}, ["serviceAccountName"], "default"),
    ],
)
def test_every_value_of_the_operators_pod_reaches_it(
    render: Render, values: Manifest, path: list[str | int], expected: object
) -> None:
    """B33."""
    found: Any = operator(render(**values))
    for step in path:
        found = found[step]
    assert found == expected


def test_labels_and_annotations_of_the_pod_reach_it(render: Render) -> None:
    (deployment,) = of_kind(render(podLabels={"a": "b"}, podAnnotations={"c": "d"}), "Deployment")
    metadata = deployment["spec"]["template"]["metadata"]
    assert metadata["labels"]["a"] == "b"
    assert metadata["annotations"] == {"c": "d"}
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= metadata["labels"].items()
    assert not any("version" in label or "chart" in label for label in selector)


def test_workload_settings_reach_the_operator(render: Render) -> None:
    """B33."""
    workloads = {"imagePullPolicy": "Never", "imagePullSecrets": [{"name": "one"}, {"name": "two"}]}
    found = parse_arguments(operator(render(workloads=workloads))["containers"][0]["args"])
    assert found.workloads.worker.pull_policy == "Never"
    assert found.workloads.gateway.pull_secrets == ("one", "two")


def test_the_operator_fits_the_restricted_pod_security_standard(render: Render) -> None:
    """B36."""
    for spec in (operator(render()), of_kind(render(), "Pod")[0]["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        security = spec["containers"][0]["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}


def test_the_operator_keeps_compiled_code_in_a_folder_that_it_can_write(render: Render) -> None:
    spec = operator(render())
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    (folder,) = [each["value"] for each in container["env"] if each["name"] == "XDG_CACHE_HOME"]
    (volume,) = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == folder]
    assert "emptyDir" in next(each for each in spec["volumes"] if each["name"] == volume)


def test_no_right_is_a_star_and_only_one_role_can_be_bound(render: Render) -> None:
    roles = {role["metadata"]["name"]: role["rules"] for role in of_kind(render(), "ClusterRole")}
    assert set(roles) == {"distserve", "distserve-gateway"}
    for rule in (rule for rules in roles.values() for rule in rules):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
    (bind,) = [rule for rule in roles["distserve"] if "bind" in rule["verbs"]]
    assert bind["resourceNames"] == ["distserve-gateway"]
    assert bind["verbs"] == ["bind"]
    assert not [rule for rule in roles["distserve"] if {"secrets", "escalate"} & {*rule["resources"], *rule["verbs"]}]
    assert [rule["verbs"] for rule in roles["distserve"] if "nodes" in rule["resources"]] == [["list"]]
    (gateway,) = roles["distserve-gateway"]
    assert gateway == {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}


def test_with_a_list_of_namespaces_the_rights_end_at_them(render: Render) -> None:
    manifests = render(watchNamespaces=["a", "b"])
    assert of_kind(manifests, "ClusterRoleBinding") == []
    assert "nodes" not in [
        name for role in of_kind(manifests, "ClusterRole") for r in role["rules"] for name in r["resources"]
    ]
    assert [binding["metadata"]["namespace"] for binding in of_kind(manifests, "RoleBinding")] == ["a", "b"]
    assert parse_arguments(operator(manifests)["containers"][0]["args"]).namespaces == ("a", "b")


def test_the_chart_carries_the_crds_as_they_are_and_keeps_them(render: Render) -> None:
    (crd,) = of_kind(render(), "CustomResourceDefinition")
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load(CRD.read_text())


@pytest.mark.parametrize(("crds", "count"), [({"install": False}, 0), ({"keep": False}, 1)])
def test_crds_can_be_left_out_or_left_to_helm(render: Render, crds: Manifest, count: int) -> None:
    found = of_kind(render(crds=crds), "CustomResourceDefinition")
    assert len(found) == count
    assert all("annotations" not in crd["metadata"] for crd in found)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"imag": {}}, "imag"),
        ({"image": {"tag": "a b"}}, "/image/tag"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"digest": "sha256:1"}}, "/image/digest"),
        ({"watchNamespaces": "all"}, "/watchNamespaces"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"crds": {"install": "yes"}}, "/crds/install"),
        ({"imagePullSecrets": ["name"]}, "/imagePullSecrets/0"),
    ],
)
def test_a_wrong_value_is_refused_and_named(
    try_render: Callable[..., "subprocess.CompletedProcess[str]"], values: Manifest, named: str
) -> None:
    done = try_render(**values)
    assert done.returncode != 0
    assert named in done.stderr
