"""The objects besides worker pods."""

from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, deployment, workloads

from distserve_operator.manifests.child import DesiredChild
from distserve_operator.manifests.children import KINDS, desired_children


def children_of(**options: Any) -> dict[tuple[str, str], DesiredChild]:
    return {(child.kind, child.name): child for child in desired_children(deployment(**options), SETTINGS)}


def test_a_deployment_has_accounts_a_binding_a_service_and_a_gateway() -> None:
    assert list(children_of()) == [
        ("ServiceAccount", "chat-worker"),
        ("ServiceAccount", "chat-gateway"),
        ("RoleBinding", "chat-gateway"),
        ("Service", "chat"),
        ("Deployment", "chat-gateway"),
    ]
    assert {kind for kind, _ in children_of()} == set(KINDS)


def test_every_child_is_owned_and_labelled() -> None:
    for child in children_of().values():
        metadata = child.manifest["metadata"]
        assert metadata["ownerReferences"][0]["controller"] is True
        assert metadata["labels"]["distserve.io/deployment"] == "chat"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "distserve-operator"


def test_only_the_gateway_gets_a_token_and_only_by_the_charts_role() -> None:
    found = children_of()
    assert found["ServiceAccount", "chat-worker"].manifest["automountServiceAccountToken"] is False
    binding = found["RoleBinding", "chat-gateway"].manifest
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "distserve-gateway",
    }
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "chat-gateway", "namespace": "default"}]


def test_the_service_finds_the_gateway_pods_and_no_worker() -> None:
    found = children_of(gateway={"replicas": 2, "port": 80})
    service = found["Service", "chat"].manifest["spec"]
    template = found["Deployment", "chat-gateway"].manifest["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert service["selector"]["distserve.io/role"] == "gateway"
    assert service["ports"] == [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}]
    assert found["Deployment", "chat-gateway"].manifest["spec"]["replicas"] == 2


def test_selectors_hold_nothing_that_changes_between_versions() -> None:
    spec = children_of()["Deployment", "chat-gateway"].manifest["spec"]
    assert set(spec["selector"]["matchLabels"]) == {"distserve.io/deployment", "distserve.io/role"}


def test_the_gateway_fits_the_restricted_pod_security_standard() -> None:
    """B36."""
    spec = children_of()["Deployment", "chat-gateway"].manifest["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_settings_reach_the_gateway() -> None:
    """B33."""
    settings = workloads(gateway="r/g:9", pull_policy="Always", pull_secrets=("one",))
    gateway = desired_children(deployment(), settings)[-1].manifest["spec"]["template"]["spec"]
    assert gateway["containers"][0]["image"] == "r/g:9"
    assert gateway["containers"][0]["imagePullPolicy"] == "Always"
    assert gateway["imagePullSecrets"] == [{"name": "one"}]


def test_the_gateways_inputs_are_what_was_asked_for() -> None:
    """B26: the worker image or the fleet's size renew no gateway."""
    before = desired_children(deployment(), SETTINGS)[-1].inputs_hash
    same = desired_children(deployment(prefill=2, max_devices=9), workloads("r/w:9"))[-1]
    assert same.inputs_hash == before
    other = desired_children(deployment(), workloads(gateway="r/g:9"))[-1]
    assert other.inputs_hash != before


@pytest.mark.parametrize(
    "change",
    [
        {"security": {"isolatePrefixes": True}},
        {"model": {"uri": "hf://a/b", "hub": {"tokenSecret": {"name": "hf"}}}},
        {"model": {"uri": "hf://a/b", "hub": {"cacheClaim": "downloads"}}},
    ],
)
def test_what_the_gateway_itself_reads_of_the_spec_renews_it(change: dict[str, Any]) -> None:
    """B26."""
    usual = deployment(model={"uri": "hf://a/b"})
    changed = deployment(**{"model": {"uri": "hf://a/b"}} | change)
    hashes = [desired_children(each, SETTINGS)[-1].inputs_hash for each in (usual, changed)]
    assert hashes[0] != hashes[1]


def test_the_gateway_downloads_as_the_workers_do() -> None:
    """B33."""
    hub = {"tokenSecret": {"name": "hf", "key": "k"}, "cacheClaim": "downloads"}
    fleet = deployment(model={"uri": "hf://a/b", "hub": hub})
    spec = desired_children(fleet, SETTINGS)[-1].manifest["spec"]["template"]["spec"]
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "downloads"}} in spec["volumes"]
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "k"}}}
    assert token in spec["containers"][0]["env"]
    assert spec["securityContext"]["fsGroup"] > 0
