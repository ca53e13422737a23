"""ServiceAccounts of workers and gateway, and the binding that lets the gateway watch pods."""

from typing import Any

from distserve_operator import names
from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import WorkloadSettings
from distserve_operator.manifests.metadata import common_labels, object_metadata, role_labels
from distserve_proto.contract import Role


def build_worker_account(deployment: DistServeDeployment) -> dict[str, Any]:
    """The account of all workers; it has no rights and no token."""
    labels = common_labels(deployment, "worker")
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": object_metadata(deployment, names.worker_account(deployment.name), labels),
        "automountServiceAccountToken": False,
    }


def build_gateway_account(deployment: DistServeDeployment) -> dict[str, Any]:
    """The account of the gateway."""
    labels = role_labels(deployment, Role.GATEWAY)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": object_metadata(deployment, names.gateway(deployment.name), labels),
    }


def build_gateway_binding(deployment: DistServeDeployment, settings: WorkloadSettings) -> dict[str, Any]:
    """Binds the gateway's account to the ClusterRole that the chart ships, in this namespace only."""
    name = names.gateway(deployment.name)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": object_metadata(deployment, name, role_labels(deployment, Role.GATEWAY)),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": settings.gateway_cluster_role,
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": deployment.namespace}],
    }
