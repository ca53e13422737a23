"""A tiny Llama with random weights, its reference, and engines on it."""

from typing import Any

import pytest
import torch
from distserve_testing.engines import EngineMaker
from distserve_testing.models import TinyLlama, write_tiny_llama

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Engine

BLOCK_BYTES = 3 * 2 * 2 * 16 * 8 * 4  # layers, K and V, key/value heads, tokens, head_dim, FP32


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests share the machine; a server pins its threads itself."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyLlama:
    folder = tmp_path_factory.mktemp("tiny-llama")
    return TinyLlama(folder, write_tiny_llama(folder))


@pytest.fixture
def make_engine(tiny: TinyLlama) -> EngineMaker:
    """Builds an engine on the tiny model with `blocks` KV blocks; other arguments are fields of `EngineConfig`."""

    def make(role: Any, blocks: int = 64, **fields: Any) -> Engine:
        return build_engine(EngineConfig(role, tiny.folder, blocks * BLOCK_BYTES, **fields))

    return make
