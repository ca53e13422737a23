"""Makes one rank, and an engine around it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from distserve_worker.engine.blueprint import BLOCK_TOKENS, Blueprint, EngineConfig, blueprint_of, kv_shard, rank_layout
from distserve_worker.engine.devices import device_of, taken
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.execution.executor import Executor, OneRank
from distserve_worker.engine.execution.rank import Rank
from distserve_worker.engine.interface import Engine, Region
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.loading.loading_model import load_model
from distserve_worker.engine.models.interface import Alone, Collective
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.colocated import ColocatedScheduler
from distserve_worker.engine.scheduling.decode import DecodeScheduler
from distserve_worker.engine.scheduling.interface import Scheduler
from distserve_worker.engine.scheduling.prefill import PrefillScheduler
from distserve_worker.engine.scheduling.rules import BatchRules, PromptRules
from distserve_worker.engine.torch_engine import TorchEngine
from distserve_worker.engine.work_memory import step_bounds

logger = logging.getLogger(__name__)

_ALONE: Final = Alone()


@dataclass(frozen=True, slots=True)
class BuiltRank:
    """A rank ready to compute, its KV memory as transports see it, and the digest of the whole model's weights."""

    rank: Rank
    region: Region
    weights_digest: str


def build_engine(config: EngineConfig) -> Engine:
    """An engine of a single rank. Raises as `blueprint_of` and `build_rank`."""
    blueprint = blueprint_of(config)
    built = build_rank(blueprint, 0)
    return engine_of(blueprint, built, OneRank(built.rank))


def build_rank(
    blueprint: Blueprint, rank: int, collective: Collective = _ALONE, progress: Callable[[float], None] | None = None
) -> BuiltRank:
    """Load a rank's part of the model and set its KV memory aside; `progress` gets the share that is loaded.

    Raises `ModelNotFound`, `ModelInvalid` and `ModelDoesNotFit`.
    """
    config = blueprint.config
    shard = blueprint.shard(rank)
    device = device_of(config.device, rank)
    taken(device, blueprint, rank)
    loaded = load_model(
        config.model, blueprint.model, config.dtype, device, shard=shard, collective=collective, progress=progress
    )
    held = kv_shard(shard)
    memory = KvMemory(rank_layout(blueprint.layout, held), blueprint.blocks, DTYPES[config.dtype], device)
    built = Rank(shard, loaded.model, memory, step_bounds(blueprint, rank))
    return BuiltRank(built, memory.region(held), loaded.digest)


def engine_of(blueprint: Blueprint, built: BuiltRank, executor: Executor) -> Engine:
    """The engine whose rank in this process is `built`."""
    config = blueprint.config
    logger.info(
        "%s engine: %d KV blocks, requests of up to %d tokens",
        config.role,
        blueprint.blocks,
        blueprint.max_model_length,
    )
    return TorchEngine(
        blueprint.description(built.weights_digest),
        blueprint.model.vocab,
        scheduler_of(config, BlockManager(blueprint.blocks, BLOCK_TOKENS)),
        executor,
        built.region,
    )


def scheduler_of(config: EngineConfig, blocks: BlockManager) -> Scheduler:
    """The policy of an engine's role."""
    prompts = PromptRules(config.max_batch_tokens, config.chunk_tokens, max_prompts=config.max_running)
    batch = BatchRules(config.max_running, lanes=config.grid.pp)
    match config.role:
        case "prefill":
            return PrefillScheduler(blocks, prompts, config.max_waiting)
        case "decode":
            return DecodeScheduler(blocks, batch, config.max_waiting)
        case "colocated":
            return ColocatedScheduler(blocks, prompts, batch, config.max_waiting)
