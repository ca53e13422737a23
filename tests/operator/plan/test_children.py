"""Decisions about the objects besides worker pods."""

import copy
from typing import Any

import pytest
from distserve_testing.deployments import SETTINGS, UID, deployment, workloads
from distserve_testing.kubernetes_world import START

from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.child import DesiredChild
from distserve_operator.manifests.children import desired_children
from distserve_operator.observed.children import Child, parse_child
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.gateway import GatewayState
from distserve_operator.plan.actions import ApplyChild, DeleteChild
from distserve_operator.plan.fleet_plan import Plan, make_plan


def live(child: DesiredChild) -> dict[str, Any]:
    """The object as the API server would hold it after we applied it, with its own additions."""
    body = copy.deepcopy(dict(child.manifest))
    body["metadata"] |= {"uid": f"uid-{child.kind}-{child.name}", "resourceVersion": "5", "generation": 1}
    body["status"] = {"observedGeneration": 1}
    if child.kind == "Service":
        body["spec"] |= {"clusterIP": "10.96.0.9", "sessionAffinity": "None"}
    return body


def fleet_of(bodies: list[dict[str, Any]], *, started: bool) -> Fleet:
    children = tuple(parse_child(body["kind"], body, UID) for body in bodies)
    return Fleet(children=children, gateway=GatewayState(1, int(started), 1, current=True, started=started))


def plan_of(
    bodies: list[dict[str, Any]], settings: WorkloadSettings = SETTINGS, *, started: bool = True, **options: Any
) -> Plan:
    return make_plan(deployment(**options), settings, fleet_of(bodies, started=started), START)


def child_actions(plan: Plan) -> list[tuple[str, str, str]]:
    found = []
    for action in plan.actions:
        if isinstance(action, ApplyChild):
            found.append(("apply", action.child.kind, action.child.name))
        elif isinstance(action, DeleteChild):
            found.append(("delete", action.kind, action.name))
    return found


@pytest.fixture
def complete() -> list[dict[str, Any]]:
    return [live(child) for child in desired_children(deployment(), SETTINGS)]


NAMES = {"Service": "chat"}


def named(bodies: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    name = NAMES.get(kind, "chat-gateway")
    return next(body for body in bodies if (body["kind"], body["metadata"]["name"]) == (kind, name))


def test_accounts_are_applied_before_what_uses_them() -> None:
    kinds = [kind for _, kind, _ in child_actions(plan_of([]))]
    assert kinds == ["ServiceAccount", "ServiceAccount", "RoleBinding", "Service", "Deployment"]
    first = plan_of([]).actions[:5]
    assert all(isinstance(action, ApplyChild) for action in first)


def test_nothing_is_applied_when_everything_is_there(complete: list[dict[str, Any]]) -> None:
    assert child_actions(plan_of(complete)) == []


def test_what_others_added_stays(complete: list[dict[str, Any]]) -> None:
    """B31."""
    for body in complete:
        body["metadata"]["labels"]["their.org/label"] = "x"
        body["metadata"].setdefault("annotations", {})["their.org/note"] = "x"
    assert child_actions(plan_of(complete)) == []


@pytest.mark.parametrize("kind", ["ServiceAccount", "RoleBinding", "Service", "Deployment"])
def test_what_others_changed_of_ours_is_corrected(complete: list[dict[str, Any]], kind: str) -> None:
    """B31."""
    del named(complete, kind)["metadata"]["labels"]["app.kubernetes.io/part-of"]
    assert child_actions(plan_of(complete)) == [("apply", kind, NAMES.get(kind, "chat-gateway"))]


def test_a_replica_count_that_somebody_set_is_corrected(complete: list[dict[str, Any]]) -> None:
    named(complete, "Deployment")["spec"]["replicas"] = 7
    (action,) = [a for a in plan_of(complete).actions if isinstance(a, ApplyChild)]
    assert action.uid == "uid-Deployment-chat-gateway"


def test_an_edit_applies_exactly_the_objects_concerned(complete: list[dict[str, Any]]) -> None:
    gateway = {"replicas": 2, "port": 8000}
    assert child_actions(plan_of(complete, gateway=gateway)) == [("apply", "Deployment", "chat-gateway")]
    gateway = {"replicas": 1, "port": 80}
    assert child_actions(plan_of(complete, gateway=gateway)) == [("apply", "Service", "chat")]


def test_another_operator_version_renews_no_gateway_pod(complete: list[dict[str, Any]]) -> None:
    """B26: the Deployment that another version rendered stays as it is until the inputs change."""
    gateway = named(complete, "Deployment")
    gateway["metadata"]["annotations"]["distserve.io/rendered-hash"] = "0ther000"
    gateway["spec"]["template"]["spec"]["containers"][0]["env"] = []
    assert child_actions(plan_of(complete)) == []
    assert child_actions(plan_of(complete, uri="pvc://models/new.gguf")) == [("apply", "Deployment", "chat-gateway")]


NEW_IMAGE = workloads(gateway="distserve/gateway:2")


def gateway_image(plan: Plan) -> str:
    (action,) = [action for action in plan.actions if isinstance(action, ApplyChild)]
    image: str = action.child.manifest["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def test_a_new_gateway_image_of_the_operators_flags_renews_no_gateway_that_works(
    complete: list[dict[str, Any]],
) -> None:
    """B26, B31: and what others change of that gateway is still corrected."""
    assert child_actions(plan_of(complete, NEW_IMAGE)) == []
    named(complete, "Deployment")["spec"]["replicas"] = 7
    assert gateway_image(plan_of(complete, NEW_IMAGE)) == "distserve/gateway:dev"


def test_a_new_gateway_image_comes_with_the_next_edit(complete: list[dict[str, Any]]) -> None:
    assert gateway_image(plan_of(complete, NEW_IMAGE, uri="pvc://models/new.gguf")) == "distserve/gateway:2"


def test_a_new_gateway_image_mends_a_gateway_that_does_not_start(complete: list[dict[str, Any]]) -> None:
    """B25."""
    assert child_actions(plan_of(complete, started=False)) == []
    assert gateway_image(plan_of(complete, NEW_IMAGE, started=False)) == "distserve/gateway:2"


@pytest.mark.parametrize("note", ["", "no json", "{}", '{"image": 1, "pullPolicy": "Always", "pullSecrets": []}'])
def test_a_gateway_that_does_not_say_what_it_runs_is_told_again(complete: list[dict[str, Any]], note: str) -> None:
    """B31."""
    named(complete, "Deployment")["metadata"]["annotations"]["distserve.io/image-source"] = note
    assert gateway_image(plan_of(complete)) == "distserve/gateway:dev"


def test_a_binding_to_another_role_is_made_anew(complete: list[dict[str, Any]]) -> None:
    changed = workloads(gateway_cluster_role="other")
    assert child_actions(plan_of(complete, changed)) == [("delete", "RoleBinding", "chat-gateway")]


def test_our_objects_that_are_no_longer_wanted_are_deleted(complete: list[dict[str, Any]]) -> None:
    stray = copy.deepcopy(named(complete, "Service"))
    stray["metadata"] |= {"name": "chat-old", "uid": "stray"}
    assert child_actions(plan_of([*complete, stray])) == [("delete", "Service", "chat-old")]


def test_an_object_that_is_being_deleted_is_waited_for(complete: list[dict[str, Any]]) -> None:
    named(complete, "Service")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert child_actions(plan_of(complete)) == []


@pytest.mark.parametrize("owners", [[], [{"kind": "Operator", "name": "other", "uid": "x", "controller": True}]])
def test_an_object_of_somebody_else_is_never_touched_and_named(
    complete: list[dict[str, Any]], owners: list[dict[str, Any]]
) -> None:
    """B31."""
    service = named(complete, "Service")
    service["metadata"]["ownerReferences"] = owners
    service["spec"]["ports"] = []
    plan = plan_of(complete)
    assert child_actions(plan) == []
    (conflict,) = plan.conflicts
    assert conflict.reason == "NameConflict"
    assert conflict.permanent
    assert "Service chat " in conflict.message


def test_objects_of_a_deleted_namesake_are_waited_for(complete: list[dict[str, Any]]) -> None:
    for body in complete:
        body["metadata"]["ownerReferences"][0]["uid"] = "of-the-deleted-one"
    plan = plan_of(complete)
    assert child_actions(plan) == []
    assert {conflict.reason for conflict in plan.conflicts} == {"PreviousObjectsLeaving"}
    assert not any(conflict.permanent for conflict in plan.conflicts)


def test_a_child_tells_who_owns_it(complete: list[dict[str, Any]]) -> None:
    found: list[Child] = [parse_child(body["kind"], body, UID) for body in complete]
    assert all(child.owned and child.owner == "DistServeDeployment chat" for child in found)
