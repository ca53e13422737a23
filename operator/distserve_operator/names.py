"""Every object name and label value: DNS-1035 safe, at most 63 characters, hashed when something had to go.

A deployment may be called anything up to 253 characters, with dots and a leading digit (B32); two different deployments
never get the same names.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from distserve_proto.contract import Role

MAX_LENGTH: Final = 63
HASH_LENGTH: Final = 8
_LABEL: Final = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?")
_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_POD_NAME: Final = re.compile(rf".+-([a-z]+)-(\d+)-(\d+)-([0-9a-f]{{{HASH_LENGTH}}})-(\d+)")


def short_hash(text: str) -> str:
    """Eight hexadecimal digits of `text`'s digest."""
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def label_value(text: str) -> str:
    """`text` itself when it is a legal label value, else its beginning and its hash."""
    if len(text) <= MAX_LENGTH and _LABEL.fullmatch(text):
        return text
    head = re.sub(r"[^-a-zA-Z0-9_.]", "-", text)[: MAX_LENGTH - HASH_LENGTH - 1].strip("-_.")
    return f"{head}-{short_hash(text)}".lstrip("-")


def object_name(deployment: str, *parts: str | int) -> str:
    """Name of an object of `deployment`: `deployment-part-part`."""
    suffix = "".join(f"-{part}" for part in parts)
    room = MAX_LENGTH - len(suffix)
    if len(deployment) <= room and _DNS_1035.fullmatch(deployment):
        return deployment + suffix
    head = re.sub(r"[^a-z0-9]+", "-", deployment.lower())
    head = head if head[:1].isalpha() else f"d{head}"
    head = head[: room - HASH_LENGTH - 1].strip("-")
    return f"{head}-{short_hash(deployment)}{suffix}"


def worker_pod(deployment: str, role: Role, instance: int, segment: int, template_hash: str, attempt: int) -> str:
    """Name of one worker pod; the attempt grows when an earlier one failed or is stuck."""
    return object_name(deployment, role, instance, segment, template_hash, attempt)


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What a worker pod's name says. Unlike labels, nobody can change it."""

    role: str
    instance: int
    segment: int
    template_hash: str
    attempt: int


def identity_of(pod_name: str) -> PodIdentity | None:
    """The identity in a name that `worker_pod` made; None for any other name."""
    found = _POD_NAME.fullmatch(pod_name)
    if found is None:
        return None
    role, instance, segment, template_hash, attempt = found.groups()
    return PodIdentity(role, int(instance), int(segment), template_hash, int(attempt))


def gateway(deployment: str) -> str:
    """Name of the gateway's Deployment, ServiceAccount and RoleBinding."""
    return object_name(deployment, Role.GATEWAY)


def service(deployment: str) -> str:
    """Name of the Service in front of the gateway: what clients see, so the deployment's own."""
    return object_name(deployment)


def worker_account(deployment: str) -> str:
    """Name of the ServiceAccount of all workers."""
    return object_name(deployment, "worker")


def endpoint(deployment: str, namespace: str, port: int) -> str:
    """Base URL of the OpenAI API for clients inside the cluster."""
    return f"http://{service(deployment)}.{namespace}.svc:{port}/v1"
