"""How much memory this pod may use, and whether an instance can fit into it."""

import os
from pathlib import Path
from typing import Final

from distserve_proto.contract import PROCESS_BYTES, ExitReason
from distserve_worker.engine.blueprint import Blueprint
from distserve_worker.exiting import WorkerFailure

# of this process's own group: of cgroup version 2, and of version 1
_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# What processes have besides weights and KV: pages of their own, of torch and gRPC for the most part; the kernel can
# drop mapped files. Measured with SmolLM2 on x86-64: the first one has 310 MB when it is loaded, and `PROCESS_BYTES`
# leaves the rest to steps; each further rank has 160 MB, with its share of the process that forks them.
_FURTHER: Final = 150 << 20
_LEFT_TO_STEPS: Final = 54 << 20


def memory_limit(files: tuple[Path, ...] = _LIMITS) -> int:
    """Bytes: the container's limit, or the machine's memory where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in files:
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # another version, or no limit ("max")
            continue
    return min(limits)


def require_fit(blueprint: Blueprint, limit: int) -> None:
    """Raise `WorkerFailure` (ModelDoesNotFit) with the numbers when all ranks together need more than `limit`.

    They are processes with weights, KV and steps. On GPUs every rank looks at its own memory.

    Nothing has been read then: a pod that is killed says nothing, be it while it loads or in its largest step, which
    its gateway would ask of the next one.
    """
    from distserve_worker.engine.loading.inventory import weight_bytes
    from distserve_worker.engine.work_memory import work_bytes

    config, ranks = blueprint.config, range(blueprint.grid.ranks)
    if config.device != "cpu":
        return
    weights = sum(weight_bytes(blueprint.model, blueprint.shard(rank), config.dtype) for rank in ranks)
    steps = max(0, sum(work_bytes(blueprint, rank) for rank in ranks) - _LEFT_TO_STEPS)
    processes = PROCESS_BYTES + _FURTHER * (len(ranks) - 1) + steps
    if weights + config.kv_cache_bytes + processes > limit:
        raise WorkerFailure(
            ExitReason.MODEL_DOES_NOT_FIT,
            f"{len(ranks)} ranks need {weights} bytes for weights in {config.dtype}, {config.kv_cache_bytes} for "
            f"the KV cache (--kv-cache-memory) and {processes} for libraries and to compute in, the pod has {limit}: "
            "give it more, a smaller cache, fewer requests at once or another --dtype",
        )
