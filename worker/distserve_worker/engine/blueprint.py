"""What all ranks of an instance agree on before any of them loads: numbers out of flags and the model's config."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from distserve_proto.contract import MAX_RUNNING
from distserve_worker.engine.interface import Description, KvLayout, KvShard
from distserve_worker.engine.parallel import WHOLE, Grid, ParallelismInvalid, Shard, shard_of
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.reading import read_config

BLOCK_TOKENS: Final = 16
# of the KV, by the number format of the weights
KV_DTYPE: Final = {"FP32": "FP32", "BF16": "BF16", "FP16": "FP16", "INT8": "BF16"}

DEVICES: Final = ("cpu", "cuda")

EngineRole = Literal["prefill", "decode", "colocated"]


class ConfigurationInvalid(ValueError):  # noqa: N818 - named as the exit reason that a user sees
    """A value that no engine of this model can have; the text names the field."""


class ModelDoesNotFit(Exception):  # noqa: N818 - named as the exit reason that a user sees
    """The memory cannot hold the weights and one request; the text gives the numbers."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is made of; lengths are in tokens. Raises `ConfigurationInvalid` naming the field."""

    role: EngineRole
    model: Path
    kv_cache_bytes: int  # of all ranks together
    dtype: str = "FP32"
    max_model_length: int | None = None  # None: the model's own length, or less when the memory holds less
    max_batch_tokens: int = 512  # L_m: new tokens of one prefill batch
    max_running: int = MAX_RUNNING  # requests that get a token in one step
    max_waiting: int = 256
    device: str = "cpu"  # one of `DEVICES`
    grid: Grid = WHOLE
    chunk_tokens: int | None = None  # tokens of a mixed step; None: prompts are computed whole, and first

    def __post_init__(self) -> None:
        if self.dtype not in KV_DTYPE:
            raise ConfigurationInvalid(f"dtype is {self.dtype}, it must be one of {', '.join(KV_DTYPE)}")
        if self.device not in DEVICES:
            raise ConfigurationInvalid(f"device is {self.device}, it must be one of {', '.join(DEVICES)}")
        for name in ("max_model_length", "max_batch_tokens", "max_running", "max_waiting", "chunk_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationInvalid(f"{name} is {value}, it must be at least 1")


@dataclass(frozen=True, slots=True)
class Blueprint:
    """An engine that can be built: every rank makes its part from this."""

    config: EngineConfig
    model: ModelConfig
    layout: KvLayout  # of a block of the whole model
    blocks: int  # that every rank holds its part of
    max_model_length: int

    @property
    def grid(self) -> Grid:
        """Shape of the instance."""
        return self.config.grid

    def rank_cache_bytes(self, rank: int) -> int:
        """Bytes of a rank's part of all blocks."""
        return self.blocks * rank_layout(self.layout, kv_shard(self.shard(rank))).block_bytes

    def shard(self, rank: int) -> Shard:
        """The part of a rank."""
        return shard_of(self.model, self.grid, rank)

    def description(self, weights_digest: str) -> Description:
        """The engine, for its server."""
        shards = tuple(kv_shard(self.shard(rank)) for rank in range(self.grid.ranks))
        tokens = self.blocks * BLOCK_TOKENS
        return Description(self.layout, shards, weights_digest, self.config.dtype, self.max_model_length, tokens)


def kv_shard(shard: Shard) -> KvShard:
    """What a rank keeps in its blocks."""
    return KvShard(shard.layers.start, len(shard.layers), shard.kv_heads.start, len(shard.kv_heads))


def blueprint_of(config: EngineConfig) -> Blueprint:
    """Check an engine's numbers against its model.

    Raises `ModelNotFound`, `ModelInvalid`, `ModelDoesNotFit`, or `ConfigurationInvalid` for a length or a parallelism
    that the model does not have.
    """
    model = read_config(config.model)
    layout = KvLayout(model.layers, model.kv_heads, model.head_dim, BLOCK_TOKENS, KV_DTYPE[config.dtype])
    try:
        shards = [kv_shard(shard_of(model, config.grid, rank)) for rank in range(config.grid.ranks)]
    except ParallelismInvalid as error:
        raise ConfigurationInvalid(str(error)) from error
    # the rank whose part of a block is largest has the fewest
    widest = max(rank_layout(layout, shard).block_bytes for shard in shards)
    blocks = config.kv_cache_bytes // config.grid.ranks // widest
    return Blueprint(
        config, model, layout, blocks, _max_model_length(config, model, widest * config.grid.ranks, blocks)
    )


def rank_layout(layout: KvLayout, shard: KvShard) -> KvLayout:
    """A rank's part of a block."""
    return replace(layout, layers=shard.layers, kv_heads=shard.heads)


def _max_model_length(config: EngineConfig, model: ModelConfig, block: int, blocks: int) -> int:
    """The length asked for, which must fit; without one, what the model can do and the memory can hold."""
    asked, held = config.max_model_length, blocks * BLOCK_TOKENS
    if asked is not None and asked > model.max_positions:
        raise ConfigurationInvalid(f"max_model_length is {asked}, the model has {model.max_positions} positions")
    needed = asked or BLOCK_TOKENS
    if needed > held:
        needed_bytes = -(-needed // BLOCK_TOKENS) * block
        raise ModelDoesNotFit(
            f"one request of {needed} tokens needs {needed_bytes} bytes of KV memory, {config.kv_cache_bytes} are set "
            f"aside, which hold {held} tokens: give more memory or a smaller maximum model length"
        )
    return asked or min(model.max_positions, held)
