"""The Service in front of the gateway pods."""

from typing import Any

from distserve_operator import names
from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.manifests.metadata import object_metadata, role_labels, selector_labels
from distserve_proto.contract import Role


def build_gateway_service(deployment: DistServeDeployment) -> dict[str, Any]:
    """A ClusterIP Service on `spec.gateway.port`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_metadata(deployment, names.service(deployment.name), role_labels(deployment, Role.GATEWAY)),
        "spec": {
            "type": "ClusterIP",
            "selector": selector_labels(deployment, Role.GATEWAY),
            "ports": [{"name": "http", "port": deployment.gateway.port, "protocol": "TCP", "targetPort": "http"}],
        },
    }
