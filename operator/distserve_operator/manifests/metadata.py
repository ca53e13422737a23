"""Names, labels and owner of every object that the operator makes."""

from importlib.metadata import version
from typing import Any, Final

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.resource import API_VERSION, KIND
from distserve_operator.names import label_value
from distserve_proto.contract import LABEL_DEPLOYMENT, LABEL_ROLE, Role

MANAGED_BY: Final = "distserve-operator"
VERSION: Final = version("distserve")


def selector_labels(deployment: DistServeDeployment, role: Role) -> dict[str, str]:
    """Labels that select the pods of a role; they never change during the life of an object."""
    return {LABEL_DEPLOYMENT: label_value(deployment.name), LABEL_ROLE: role}


def common_labels(deployment: DistServeDeployment, component: str) -> dict[str, str]:
    """Labels of every object."""
    return {
        "app.kubernetes.io/name": "distserve",
        "app.kubernetes.io/instance": label_value(deployment.name),
        "app.kubernetes.io/version": VERSION,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "distserve",
        "app.kubernetes.io/managed-by": MANAGED_BY,
        LABEL_DEPLOYMENT: label_value(deployment.name),
    }


def role_labels(deployment: DistServeDeployment, role: Role) -> dict[str, str]:
    """Labels of a pod of `role`, and of what serves only that role."""
    return common_labels(deployment, role) | selector_labels(deployment, role)


def owner_reference(deployment: DistServeDeployment) -> dict[str, Any]:
    """Makes the garbage collector delete an object with its deployment, so that no finalizer is needed."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": deployment.name,
        "uid": deployment.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def object_metadata(deployment: DistServeDeployment, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """The `metadata` of a child."""
    return {
        "name": name,
        "namespace": deployment.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(deployment)],
    }
