"""Which device a rank computes on, and whether its part of a model fits there."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import torch

from distserve_worker.engine.blueprint import (
    Blueprint,
    ConfigurationInvalid,
    EngineConfig,
    ModelDoesNotFit,
    blueprint_of,
)
from distserve_worker.engine.loading.inventory import weight_bytes
from distserve_worker.engine.parallel import Grid
from distserve_worker.engine.work_memory import work_bytes

SHARED_GPUS: Final = "NCCL_MULTI_RANK_GPU_ENABLE"  # NCCL's own variable: at 1, ranks may share a GPU

_NO_HOST_MEMORY: Final = "DefaultCPUAllocator: can't allocate memory"  # as torch says it
_OURS: Final = 0.96  # of a GPU's memory; contexts of CUDA take the rest


def require_gpus(grid: Grid) -> None:
    """Raise `ConfigurationInvalid` when this process cannot use a GPU for each rank."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:  # a build without CUDA, no driver, no GPU
        raise ConfigurationInvalid(
            f"device is cuda, and torch can use none here ({error}): give the process a GPU, or take cpu"
        ) from error
    require_enough(grid, torch.cuda.device_count(), shared=os.environ.get(SHARED_GPUS) == "1")


def require_enough(grid: Grid, visible: int, *, shared: bool) -> None:
    """As `require_gpus`, with `visible` GPUs, which may be `shared` among ranks."""
    if grid.ranks > visible and not shared:
        raise ConfigurationInvalid(
            f"tp {grid.tp} x pp {grid.pp} are {grid.ranks} ranks, each on a GPU of its own, and this process sees "
            f"{visible}: give it {grid.ranks}, or a smaller tp or pp ({SHARED_GPUS}=1 lets ranks share, for tests)"
        )


def device_of(kind: str, rank: int) -> torch.device:
    """Where a rank computes, `kind` being "cpu" or "cuda": ranks take the GPUs that they see in turn."""
    return torch.device("cpu") if kind == "cpu" else torch.device("cuda", rank % torch.cuda.device_count())


def taken(device: torch.device, blueprint: Blueprint, rank: int) -> None:
    """Make a GPU this thread's own, once it is known that the rank fits. Raises `ModelDoesNotFit`."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        require_room(blueprint, rank, torch.cuda.mem_get_info(device)[0])


def rooms(grid: Grid) -> list[int]:
    """Bytes that each rank may use of its GPU: known without a context there, which would take from its room."""
    gpus = [device_of("cuda", rank).index for rank in range(grid.ranks)]
    return [int(_OURS * torch.cuda.get_device_properties(gpu).total_memory) // gpus.count(gpu) for gpu in gpus]


def cache_beside(config: EngineConfig, rooms: Sequence[int]) -> int:
    """Bytes of KV cache, of all ranks together, beside weights and the largest step; each rank has that much room.

    Raises as `blueprint_of`, and `ModelDoesNotFit` with the numbers of a rank that has no room for any.
    """
    largest = blueprint_of(replace(config, kv_cache_bytes=sum(rooms)))  # steps as long as the model's requests may be
    empty, one_block = replace(largest, blocks=0), replace(largest, blocks=1)
    blocks, widest = [], 0
    for rank, room in enumerate(rooms):
        require_room(empty, rank, room)
        shard, block = largest.shard(rank), one_block.rank_cache_bytes(rank)
        left = room - weight_bytes(largest.model, shard, config.dtype, config.device) - work_bytes(empty, rank)
        layers = len(shard.layers)
        blocks.append(left * layers // (layers + 1) // block)  # a step copies the KV of one layer
        widest = max(widest, block)
    return min(blocks) * widest * len(rooms)


def require_room(blueprint: Blueprint, rank: int, free: int) -> None:
    """Raise `ModelDoesNotFit` with the numbers when a rank needs more than `free` bytes of its GPU."""
    config = blueprint.config
    weights = weight_bytes(blueprint.model, blueprint.shard(rank), config.dtype, config.device)
    cache = blueprint.rank_cache_bytes(rank)
    work = work_bytes(blueprint, rank)
    if weights + cache + work > free:
        raise ModelDoesNotFit(
            f"rank {rank} needs {weights} bytes for weights in {config.dtype}, {cache} for its part of the KV cache "
            f"and {work} to compute in, its GPU has {free} free: take a smaller cache, a smaller maximum model length, "
            "more ranks or INT8"
        )


class StepStarved(Exception):  # noqa: N818 - named after what happened
    """A step got no memory. Nothing of it counts, and nothing else is harmed: others can be computed."""


@contextmanager
def starving(device: torch.device) -> Iterator[None]:
    """Raise `StepStarved` when there is no memory for what is done under it, after which nothing of it may count.

    What was begun on a GPU before is over then: whoever gets the step's blocks next would be written over.
    """
    try:
        yield
    except Exception as error:
        if not _lacks_memory(error):
            raise
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        raise StepStarved(str(error)) from error


@contextmanager
def memory_named() -> Iterator[None]:
    """Raise `ModelDoesNotFit` when there is no memory left for what is done under it: the same would happen again."""
    try:
        yield
    except Exception as error:
        if not _lacks_memory(error):
            raise
        raise ModelDoesNotFit(
            f"a step needs more memory than is left ({error}): take a smaller cache, a smaller maximum model length, "
            "fewer requests at once or more ranks"
        ) from error


def _lacks_memory(error: Exception) -> bool:
    if isinstance(error, RuntimeError) and _NO_HOST_MEMORY in str(error):
        return True
    return isinstance(error, (torch.OutOfMemoryError, MemoryError, StepStarved))
