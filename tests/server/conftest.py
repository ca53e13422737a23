"""Real worker processes: one small model with a wide KV cache, and SmolLM2."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from distserve_testing.gateways import Gateway, opened_gateway
from distserve_testing.models import write_tiny_llama
from distserve_testing.workers import Pair, WorkerProcess, started_pair

# 18 KB of KV for each token: 400 tokens are more than socket buffers hold.
WIDE: Final[dict[str, Any]] = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "max_position_embeddings": 4096,
}
LIMITS: Final[dict[str, Any]] = {
    "max_model_length": 2048,
    "kv_cache_memory": "64Mi",
    "max_batch_tokens": 256,
    "max_waiting": 32,
}

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="session")
def wide_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide-llama")
    write_tiny_llama(folder, **WIDE)
    return folder


@pytest.fixture
def start_worker(wide_llama: Path, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers that live for one test."""
    started: list[WorkerProcess] = []

    def start(
        role: Literal["prefill", "decode", "colocated"], model: Path | str = wide_llama, **flags: Any
    ) -> WorkerProcess:
        started.append(WorkerProcess(role, model, tmp_path, **LIMITS | flags))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture(scope="session")
def shared_pair(wide_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A prefill and a decode worker for all tests that leave them empty."""
    with started_pair(wide_llama, tmp_path_factory.mktemp("pair"), LIMITS, LIMITS) as pair:
        yield pair


@pytest.fixture
def prefill(shared_pair: Pair) -> Iterator[WorkerProcess]:
    """The shared prefill worker, which every test has to leave empty."""
    yield shared_pair.prefill
    shared_pair.prefill.wait_until_empty()


@pytest.fixture
def decode(shared_pair: Pair) -> Iterator[WorkerProcess]:
    """The shared decode worker, which every test has to leave empty."""
    yield shared_pair.decode
    shared_pair.decode.wait_until_empty()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with opened_gateway() as opened:
        yield opened
