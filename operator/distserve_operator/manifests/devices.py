"""What a worker pod asks of its node: cores and memory on a CPU fleet, GPUs of the right product else."""

from typing import Any, Final

from distserve_operator.api.deployment import Cluster
from distserve_operator.api.devices import GPU_PRODUCTS
from distserve_operator.manifests.worker_template import WorkerTemplate
from distserve_proto.contract import MAX_RUNNING

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_MIB: Final = 1024**2
# The KV cache needs no room there, it is in files without a name; NCCL's buffers do, and on CPUs hardly anything.
_SHARED_PER_RANK: Final = 64 * _MIB
_SHARED_PER_GPU_RANK: Final = 256 * _MIB
_SHARED_PART: Final = 8  # of the memory, at most
# The engine of a GPU worker mostly waits for its GPU; without a limit it may take more.
_CORES_PER_GPU: Final = 1
# A decode step reads the weights once for all of them, and what each needs beside its KV is little there.
_RUNNING_PER_GPU_STEP: Final = 256


def requests_per_device(cluster: Cluster) -> dict[str, int]:
    """What a pod requests for each of its devices: cores, bytes of memory, and on a GPU fleet a GPU."""
    asked = {"cpu": cluster.cores_per_device or _CORES_PER_GPU, "memory": cluster.memory_per_device}
    return asked if cluster.resource_name is None else asked | {cluster.resource_name: 1}


def resources(template: WorkerTemplate) -> dict[str, Any]:
    """`resources` of the worker's container, its /dev/shm included. A CPU fleet asks for no GPU (B34)."""
    cluster = template.cluster
    asked = {name: amount * template.devices for name, amount in requests_per_device(cluster).items()}
    requests = {name: str(amount) for name, amount in asked.items()} | {"memory": f"{asked['memory'] // _MIB}Mi"}
    if cluster.resource_name is None:
        return {"requests": requests, "limits": dict(requests)}
    return {"requests": requests, "limits": {cluster.resource_name: requests[cluster.resource_name]}}


def kv_cache_bytes(cluster: Cluster) -> int | None:
    """Size of the KV cache on a device of a CPU fleet: a third of its memory, which holds the runtime's libraries too.

    None: a GPU holds as much as its weights and the largest step leave.
    """
    return cluster.memory_per_device // 3 if cluster.resource_name is None else None


def kv_cache_memory(template: WorkerTemplate) -> str:
    """Size of the KV cache of an instance, as a quantity, or that a worker is to see for itself."""
    each = kv_cache_bytes(template.cluster)
    return "auto" if each is None else f"{each * template.devices // _MIB}Mi"


def running_requests(cluster: Cluster) -> int:
    """Requests that get a token in one step of a worker: on CPUs the worker's default, on GPUs more."""
    return MAX_RUNNING if cluster.resource_name is None else _RUNNING_PER_GPU_STEP


def shared_memory(template: WorkerTemplate) -> str:
    """Size of /dev/shm of a pod with several ranks, as a quantity; it is a part of the memory that the pod asks for."""
    usual = _SHARED_PER_RANK if template.cluster.resource_name is None else _SHARED_PER_GPU_RANK
    each = min(usual, template.cluster.memory_per_device // _SHARED_PART)
    return f"{each * template.devices // _MIB}Mi"


def scheduling(template: WorkerTemplate, selector: dict[str, str]) -> dict[str, Any]:
    """Node affinity by GPU product, toleration of the usual GPU taint, replicas spread over nodes where possible."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector},
    }
    products = GPU_PRODUCTS.get(template.cluster.device_type)
    if products is None:
        return {"topologySpreadConstraints": [spread]}
    product = {"key": PRODUCT_LABEL, "operator": "In", "values": list(products)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [product]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"key": template.cluster.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [spread],
    }
