"""A tiny Llama with random weights, and the engines on it that the measuring process builds."""

from pathlib import Path
from typing import Literal

import pytest
import torch
from distserve_testing.models import write_tiny_llama

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.measuring.batches import MOST_REQUESTS, MOST_TOKENS
from distserve_worker.measuring.empty_engine import empty_twin
from distserve_worker.measuring.stepping import Bench

KV_BYTES = 32_000_000
VOCABULARY = 211


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-llama")
    write_tiny_llama(folder)
    return folder


@pytest.fixture(params=["FP32", "BF16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["prefill", "decode"])
def phase(request: pytest.FixtureRequest) -> Literal["prefill", "decode"]:
    return "prefill" if request.param == "prefill" else "decode"


@pytest.fixture
def bench(tiny: Path, phase: Literal["prefill", "decode"], dtype: str) -> Bench:
    config = EngineConfig(phase, tiny, KV_BYTES, dtype, max_batch_tokens=MOST_TOKENS, max_running=MOST_REQUESTS)
    engine = build_engine(config)
    return Bench(engine, empty_twin(engine, config), VOCABULARY, temperature=1.0)
