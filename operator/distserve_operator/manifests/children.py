"""The list of everything a deployment consists of besides its worker pods, in the order in which it is applied."""

from typing import Final

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.accounts import build_gateway_account, build_gateway_binding, build_worker_account
from distserve_operator.manifests.child import DesiredChild, desired_child
from distserve_operator.manifests.gateway_deployment import build_gateway_deployment, gateway_inputs
from distserve_operator.manifests.gateway_service import build_gateway_service

KINDS: Final = ("ServiceAccount", "RoleBinding", "Service", "Deployment")


def desired_children(deployment: DistServeDeployment, settings: WorkloadSettings) -> tuple[DesiredChild, ...]:
    """Accounts come first: a pod whose account does not exist is refused."""
    gateway = build_gateway_deployment(deployment, settings.gateway)
    return (
        desired_child(build_worker_account(deployment)),
        desired_child(build_gateway_account(deployment)),
        desired_child(build_gateway_binding(deployment, settings)),
        desired_child(build_gateway_service(deployment)),
        desired_child(gateway, gateway_inputs(deployment, settings.gateway), rolls_pods=True),
    )
