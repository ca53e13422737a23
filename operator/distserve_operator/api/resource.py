"""Coordinates of the custom resource in the Kubernetes API."""

from typing import Final

GROUP: Final = "distserve.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DistServeDeployment"
PLURAL: Final = "distservedeployments"
