"""What the `restricted` Pod Security standard asks of a pod, and a little more."""

from typing import Any, Final

USER: Final = 65532


def pod_security(*, writes_claim: bool = False) -> dict[str, Any]:
    """`securityContext` of a pod; one that writes to a claim needs a group to own it."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        **({"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"} if writes_claim else {}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """`securityContext` of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
