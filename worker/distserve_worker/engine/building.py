"""Makes an engine from a model and a few numbers."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from distserve_worker.engine.decode_engine import DecodeEngine
from distserve_worker.engine.decode_scheduler import DecodeScheduler
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.interface import Description, Engine, KvLayout
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.loading.loading_model import load_model
from distserve_worker.engine.prefill_engine import PrefillEngine
from distserve_worker.engine.prefill_scheduler import PrefillScheduler
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.reading import read_config

BLOCK_TOKENS: Final = 16

logger = logging.getLogger(__name__)


class ConfigurationInvalid(ValueError):  # noqa: N818 - named as the exit reason that a user sees
    """A value that no engine of this model can have; the text names the field."""


class ModelDoesNotFit(Exception):  # noqa: N818 - named as the exit reason that a user sees
    """The KV memory cannot hold even one request; the text gives the numbers."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is made of; lengths are in tokens. Raises `ConfigurationInvalid` naming the field."""

    role: Literal["prefill", "decode"]
    model: Path
    kv_cache_bytes: int
    dtype: str = "FP32"
    max_model_length: int | None = None  # None: the model's own length, or less when the memory holds less
    max_batch_tokens: int = 512  # L_m: new tokens of one prefill batch
    max_running: int = 64
    max_waiting: int = 256
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigurationInvalid(f"dtype is {self.dtype}, it must be one of {', '.join(DTYPES)}")
        for name in ("max_model_length", "max_batch_tokens", "max_running", "max_waiting"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationInvalid(f"{name} is {value}, it must be at least 1")


def build_engine(config: EngineConfig) -> Engine:
    """Load the model and set the KV memory aside.

    Raises `ModelNotFound`, `ModelInvalid`, `ModelDoesNotFit`, or `ConfigurationInvalid` for a length that the model
    does not have.
    """
    model_config = read_config(config.model)
    layout = _layout(model_config, config.dtype)
    blocks = config.kv_cache_bytes // _block_bytes(layout)
    length = _max_model_length(config, model_config, layout, blocks)
    device = torch.device(config.device)
    loaded = load_model(config.model, model_config, config.dtype, device)
    memory = KvMemory(layout, blocks, DTYPES[config.dtype], device)
    logger.info("%s engine: %d KV blocks, requests of up to %d tokens", config.role, blocks, length)
    description = Description(layout, loaded.digest, config.dtype, length, blocks * BLOCK_TOKENS)
    if config.role == "prefill":
        prefill = PrefillScheduler(config.max_batch_tokens, config.max_waiting)
        return PrefillEngine(description, model_config.vocab, loaded.model, memory, prefill)
    decode = DecodeScheduler(config.max_running, config.max_waiting)
    return DecodeEngine(description, model_config.vocab, loaded.model, memory, decode)


def _layout(model: ModelConfig, dtype: str) -> KvLayout:
    return KvLayout(model.layers, model.kv_heads, model.head_dim, BLOCK_TOKENS, dtype)


def _block_bytes(layout: KvLayout) -> int:
    items = layout.layers * 2 * layout.kv_heads * layout.block_tokens * layout.head_dim
    return items * DTYPES[layout.dtype].itemsize


def _max_model_length(config: EngineConfig, model: ModelConfig, layout: KvLayout, blocks: int) -> int:
    """The length asked for, which must fit; without one, what the model can do and the memory can hold."""
    asked, held = config.max_model_length, blocks * BLOCK_TOKENS
    if asked is not None and asked > model.max_positions:
        raise ConfigurationInvalid(f"max_model_length is {asked}, the model has {model.max_positions} positions")
    needed = asked or BLOCK_TOKENS
    if needed > held:
        needed_bytes = -(-needed // BLOCK_TOKENS) * _block_bytes(layout)
        raise ModelDoesNotFit(
            f"one request of {needed} tokens needs {needed_bytes} bytes of KV memory, {config.kv_cache_bytes} are set "
            f"aside, which hold {held} tokens: give more memory or a smaller maximum model length"
        )
    return asked or min(model.max_positions, held)
