"""The whole plan of a pass."""

from dataclasses import dataclass, replace
from datetime import datetime

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.conditions.failure import Failure
from distserve_operator.conditions.placement import placement_verdict
from distserve_operator.manifests.children import desired_children
from distserve_operator.manifests.worker_template import WorkerTemplate, worker_template
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.pods import identity_labels
from distserve_operator.plan.actions import Action, RelabelPod
from distserve_operator.plan.children import gateway_source, name_conflicts, plan_children
from distserve_operator.plan.draft import Draft, begin
from distserve_operator.plan.roles import DesiredRole, mend, roll
from distserve_operator.plan.succession import make_room, retire
from distserve_operator.plan.vacancies import fill
from distserve_proto.contract import WORKER_ROLES


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order; `wake_at` is when to look again if nothing happens until then."""

    actions: tuple[Action, ...] = ()
    conflicts: tuple[Failure, ...] = ()
    wake_at: datetime | None = None


def make_plan(deployment: DistServeDeployment, settings: WorkloadSettings, fleet: Fleet, now: datetime) -> Plan:
    """The next steps towards `deployment`. A placement that cannot be served changes nothing that exists."""
    if not placement_verdict(deployment).holds:
        return Plan()
    children = desired_children(deployment, replace(settings, gateway=gateway_source(deployment, settings, fleet)))
    draft = begin(fleet.pods, deployment.cluster.max_devices, now)
    for pod in fleet.pods:
        if pod.role not in WORKER_ROLES and not pod.terminating:
            draft.delete(pod, "the operator has not made it")
    templates = [worker_template(deployment, role, settings) for role in deployment.placement.shapes]
    _plan_roles([_desired(template) for template in templates], fleet, draft)
    return Plan(
        actions=(*plan_children(children, fleet), *_relabel(fleet), *draft.actions),
        conflicts=tuple(name_conflicts(deployment, children, fleet)),
        wake_at=draft.wake_at,
    )


def _relabel(fleet: Fleet) -> list[RelabelPod]:
    """Gateways find pods by their labels (B31: what others did to our fields is undone)."""
    return [
        RelabelPod(pod.name, pod.uid, identity_labels(pod.identity), "somebody changed its labels")
        for pod in fleet.pods
        if pod.identity is not None and not pod.labelled and not pod.terminating
    ]


def _plan_roles(roles: list[DesiredRole], fleet: Fleet, draft: Draft) -> None:
    """Role by role; devices go to what is missing in any role before a surge takes them."""
    mended = [mend(desired, fleet.of_role(desired.role), draft) for desired in roles]
    blocked = fill(mended, draft)
    wanted = {desired.role for desired in roles}
    retired = tuple(pod for pod in fleet.pods if pod.role in WORKER_ROLES and pod.role not in wanted)
    retire(retired, mended, draft)
    if make_room(retired, mended, draft, blocked=blocked):
        return
    for one in mended:
        roll(one, draft)
        if not all(slot.settled for slot in one.slots):
            return


def _desired(template: WorkerTemplate) -> DesiredRole:
    return DesiredRole(template.role, template.shape.replicas, template.devices, template.hash, template.source)
