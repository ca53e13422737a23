"""What is wanted of each worker role and what there is, for the conditions."""

from collections.abc import Iterable
from typing import Final

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.api.shape import Shape
from distserve_operator.conditions.failure import Failure
from distserve_operator.conditions.situation import RoleSituation
from distserve_operator.manifests.worker_template import worker_template
from distserve_operator.observed.fleet import Fleet
from distserve_proto.contract import WORKER_ROLES, Role

_NONE: Final = Shape(tp=1, pp=1, replicas=0)


def role_situations(
    deployment: DistServeDeployment, settings: WorkloadSettings, fleet: Fleet, failures: Iterable[Failure]
) -> tuple[RoleSituation, ...]:
    """Of the roles that the placement has, and of others as long as instances of an earlier placement are left."""
    failed = tuple(failures)
    left = [role for role in WORKER_ROLES if any(pod.alive for pod in fleet.of_role(role))]
    roles = dict.fromkeys((*deployment.placement.shapes, *left))
    return tuple(_of_role(role, deployment, settings, fleet, failed) for role in roles)


def _of_role(
    role: Role,
    deployment: DistServeDeployment,
    settings: WorkloadSettings,
    fleet: Fleet,
    failures: tuple[Failure, ...],
) -> RoleSituation:
    shape, template_hash = _NONE, ""
    if role in deployment.placement.shapes:
        template = worker_template(deployment, role, settings)
        shape, template_hash = template.shape, template.hash
    mine = tuple(failure for failure in failures if failure.role in {role, None})
    return RoleSituation(role, shape, template_hash, deployment.cluster.max_devices, fleet.of_role(role), mine)
