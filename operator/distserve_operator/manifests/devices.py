"""What a worker pod asks of its node: cores and memory on a CPU fleet, GPUs of the right product else."""

from typing import Any, Final

from distserve_operator.api.devices import GPUS
from distserve_operator.manifests.worker_template import WorkerTemplate

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_MIB: Final = 1024**2
# The engine of a GPU worker mostly waits for its GPU; without a limit it may take more.
_CORES_PER_GPU: Final = 1


def resources(template: WorkerTemplate) -> dict[str, Any]:
    """`resources` of the worker's container. A CPU fleet asks for no GPU (B34)."""
    cluster, devices = template.cluster, template.devices
    memory = f"{cluster.memory_per_device * devices // _MIB}Mi"
    if cluster.resource_name is None:
        asked = {"cpu": str((cluster.cores_per_device or 1) * devices), "memory": memory}
        return {"requests": asked, "limits": dict(asked)}
    gpus = {cluster.resource_name: str(devices)}
    return {"requests": {"cpu": str(_CORES_PER_GPU * devices), "memory": memory, **gpus}, "limits": gpus}


def kv_cache_memory(template: WorkerTemplate) -> str:
    """Size of the KV cache of an instance: a third of a CPU pod's memory, half of a GPU's.

    The rest is for weights, activations and the runtime; a CPU pod's memory holds the runtime's libraries as well.
    """
    gpu = GPUS.get(template.cluster.device_type)
    share = template.cluster.memory_per_device // 3 if gpu is None else gpu.memory_bytes // 2
    return f"{share * template.devices // _MIB}Mi"


def scheduling(template: WorkerTemplate, selector: dict[str, str]) -> dict[str, Any]:
    """Node affinity by GPU product, toleration of the usual GPU taint, replicas spread over nodes where possible."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector},
    }
    gpu = GPUS.get(template.cluster.device_type)
    if gpu is None:
        return {"topologySpreadConstraints": [spread]}
    product = {"key": PRODUCT_LABEL, "operator": "In", "values": list(gpu.products)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [product]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"key": template.cluster.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [spread],
    }
