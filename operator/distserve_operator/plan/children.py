"""Which of the objects besides the worker pods must be applied or deleted."""

from collections.abc import Iterable

from distserve_operator import names
from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.resource import KIND
from distserve_operator.api.settings import ImageSource, WorkloadSettings
from distserve_operator.conditions.failure import Failure
from distserve_operator.manifests.child import DesiredChild
from distserve_operator.manifests.gateway_deployment import gateway_inputs
from distserve_operator.manifests.hashing import hash_of
from distserve_operator.observed.children import Child
from distserve_operator.observed.fleet import Fleet
from distserve_operator.plan.actions import ApplyChild, DeleteChild
from distserve_operator.plan.drift import says
from distserve_proto.contract import Role


def plan_children(desired: Iterable[DesiredChild], fleet: Fleet) -> list[ApplyChild | DeleteChild]:
    """Actions in the order of `desired`, then the removal of what is ours but no longer wanted."""
    wanted = list(desired)
    actions = [action for child in wanted if (action := _next(child, fleet.child(child.kind, child.name))) is not None]
    known = {(child.kind, child.name) for child in wanted}
    strays = [c for c in fleet.children if c.owned and not c.terminating and (c.kind, c.name) not in known]
    return actions + [DeleteChild(c.kind, c.name, c.uid, "no longer part of the deployment") for c in strays]


def gateway_source(deployment: DistServeDeployment, settings: WorkloadSettings, fleet: Fleet) -> ImageSource:
    """What gateway pods are to run: what they were made with, until the spec renews them or they do not start.

    So the new images of an upgraded operator replace no gateway pod that works (B26), and mend one that does not (B25).
    """
    live = fleet.child("Deployment", names.gateway(deployment.name))
    if live is None or live.source is None or fleet.gateway is None or not fleet.gateway.started:
        return settings.gateway
    renewed = live.inputs_hash != hash_of(gateway_inputs(deployment, live.source))
    return settings.gateway if renewed else live.source


def name_conflicts(deployment: DistServeDeployment, desired: Iterable[DesiredChild], fleet: Fleet) -> list[Failure]:
    """Objects that have our names but another owner; they are never touched (B31)."""
    found = [fleet.child(child.kind, child.name) for child in desired]
    return [conflict(deployment, c.kind, c.name, c.owner) for c in found if c is not None and not c.owned]


def conflict(deployment: DistServeDeployment, kind: str, name: str, owner: str) -> Failure:
    """What an object of another owner means; one of a deleted deployment of the same name will go by itself."""
    if owner == f"{KIND} {deployment.name}":
        text = f"{kind} {name} of the deleted deployment of the same name is still being removed"
        return Failure(None, "PreviousObjectsLeaving", text)
    text = f"{kind} {name} exists and is managed by {owner}: delete it, or choose another name for the deployment"
    return Failure(None if kind == "ServiceAccount" else Role.GATEWAY, "NameConflict", text, permanent=True)


def _next(child: DesiredChild, live: Child | None) -> ApplyChild | DeleteChild | None:
    if live is None:
        return ApplyChild(child, None, "missing")
    if not live.owned or live.terminating:
        return None
    if "roleRef" in child.manifest and not says(live.body.get("roleRef"), child.manifest["roleRef"]):
        return DeleteChild(live.kind, live.name, live.uid, "bound to another role, which cannot be changed")
    if live.inputs_hash != child.inputs_hash:
        return ApplyChild(child, live.uid, "changed")
    comparable = live.rendered_hash == child.rendered_hash or not child.rolls_pods
    if comparable and not says(live.body, child.manifest):
        return ApplyChild(child, live.uid, "changed by somebody else")
    return None
