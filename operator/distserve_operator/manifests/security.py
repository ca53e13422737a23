"""What the `restricted` Pod Security standard asks of a pod, and a little more."""

from typing import Any, Final

USER: Final = 65532


def pod_security() -> dict[str, Any]:
    """`securityContext` of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """`securityContext` of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
