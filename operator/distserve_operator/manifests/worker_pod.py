"""The pod of one worker instance."""

from typing import Any, Final

from distserve_operator import names
from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.devices import DeviceType
from distserve_operator.api.shape import Shape
from distserve_operator.manifests.devices import kv_cache_memory, resources, running_requests, scheduling, shared_memory
from distserve_operator.manifests.metadata import object_metadata, role_labels, selector_labels
from distserve_operator.manifests.model_files import ModelFiles, literal, model_files
from distserve_operator.manifests.probes import probes
from distserve_operator.manifests.security import container_security, pod_security
from distserve_operator.manifests.worker_template import WorkerTemplate
from distserve_operator.observed.images import image_annotation
from distserve_operator.observed.pods import ANNOTATION_DEVICES, identity_labels
from distserve_proto.contract import (
    ENV_POD_IP,
    ENV_THREADS,
    WORKER_DATA_PORT,
    WORKER_GRPC_PORT,
    WORKER_HTTP_PORT,
)

CONTAINER: Final = "worker"
DRAIN_SECONDS: Final = 60
# After the drain: closing connections and the interpreter's own end.
_EXIT_SECONDS: Final = 15
_SEGMENT: Final = 0


def build_worker_pod(
    deployment: DistServeDeployment, template: WorkerTemplate, instance: int, attempt: int
) -> dict[str, Any]:
    """The pod of one instance. A failed container restarts in place; a failed pod is replaced by the next attempt."""
    name = names.worker_pod(deployment.name, template.role, instance, _SEGMENT, template.hash, attempt)
    identity = names.PodIdentity(template.role, instance, _SEGMENT, template.hash, attempt)
    labels = role_labels(deployment, template.role) | identity_labels(identity)
    metadata = object_metadata(deployment, name, labels)
    metadata["annotations"] = {ANNOTATION_DEVICES: str(template.devices), **image_annotation(template.source)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(deployment, template)}


def _spec(deployment: DistServeDeployment, template: WorkerTemplate) -> dict[str, Any]:
    files = model_files(template.model.source)
    secrets = [{"name": name} for name in template.source.pull_secrets]
    return {
        "restartPolicy": "Always",
        "serviceAccountName": names.worker_account(deployment.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": DRAIN_SECONDS + _EXIT_SECONDS,
        "securityContext": pod_security(writes_claim=files.writes_claim),
        **({"imagePullSecrets": secrets} if secrets else {}),
        **scheduling(template, selector_labels(deployment, template.role)),
        "containers": [_container(template, files)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *_shared_volumes(template), *files.volumes],
    }


def _container(template: WorkerTemplate, files: ModelFiles) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": template.source.image,
        "imagePullPolicy": template.source.pull_policy,
        "args": _arguments(template, files.argument),
        "env": _environment(files),
        "ports": [
            {"name": "grpc", "containerPort": WORKER_GRPC_PORT},
            {"name": "data", "containerPort": WORKER_DATA_PORT},
            {"name": "http", "containerPort": WORKER_HTTP_PORT},
        ],
        "resources": resources(template),
        **probes("http"),
        "securityContext": container_security(),
        "volumeMounts": _mounts(template, files),
    }


def _mounts(template: WorkerTemplate, files: ModelFiles) -> list[dict[str, Any]]:
    shared = [{"name": volume["name"], "mountPath": "/dev/shm"} for volume in _shared_volumes(template)]  # noqa: S108
    return [{"name": "tmp", "mountPath": "/tmp"}, *shared, *files.mounts]  # noqa: S108 - paths in the container


def _shared_volumes(template: WorkerTemplate) -> list[dict[str, Any]]:
    """What the ranks of a pod share; without it a container gets 64 MiB, whatever the number of ranks (B34)."""
    if template.devices == 1:
        return []
    return [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory(template)}}]


def _arguments(template: WorkerTemplate, model: str) -> list[str]:
    limit = template.model.max_model_length
    return [
        f"--role={template.role}",
        f"--model={literal(model)}",
        f"--served-name={template.model.served_name}",
        f"--dtype={template.model.dtype}",
        f"--device={'cpu' if template.cluster.device_type is DeviceType.CPU else 'cuda'}",
        *([] if limit is None else [f"--max-model-length={limit}"]),
        *_shape_arguments(template.shape),
        f"--kv-cache-memory={kv_cache_memory(template)}",
        f"--max-running={running_requests(template.cluster)}",
        f"--advertise-host=$({ENV_POD_IP})",
        f"--drain-seconds={DRAIN_SECONDS}",
    ]


def _shape_arguments(shape: Shape) -> list[str]:
    """A step never takes more than a prefill batch may, so a larger chunk needs that raised as well."""
    given = {
        "tp": shape.tp if shape.tp > 1 else None,
        "pp": shape.pp if shape.pp > 1 else None,
        "max-batch-tokens": shape.max_batch_tokens or shape.chunk_tokens,
        "chunk-tokens": shape.chunk_tokens,
    }
    return [f"--{name}={number}" for name, number in given.items() if number is not None]


def _environment(files: ModelFiles) -> list[dict[str, Any]]:
    cores = {"resourceFieldRef": {"containerName": CONTAINER, "resource": "requests.cpu"}}
    return [
        {"name": ENV_POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        # Of all ranks together. More threads than cores slow torch down many times; OpenMP reads its own variable
        # before the program starts.
        {"name": ENV_THREADS, "valueFrom": cores},
        {"name": "OMP_NUM_THREADS", "valueFrom": cores},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - the only writable path of the container
        *files.environment,
    ]
