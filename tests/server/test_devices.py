"""Ranks in processes of their own say what transformers says, on every kind of device."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from distserve_testing.gateways import Gateway
from distserve_testing.models import TinyLlama, write_tiny_llama
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]
SHARED = list(range(50, 90))  # two blocks and a half
PROMPTS = [[*SHARED, 3], [7], list(range(16)), [*SHARED, 4, 5], list(range(100, 180))]
OUTPUT = 20
SIXTEEN_BLOCKS = f"{16 * 3 * 2 * 2 * 16 * 8 * 4}"  # layers, K and V, heads, tokens, head_dim, FP32: requests need 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TinyLlama:
    folder = tmp_path_factory.mktemp("ranks")
    return TinyLlama(folder, write_tiny_llama(folder))


@pytest.mark.parametrize("shape", [{}, {"tp": 2}, {"pp": 2}, {"tp": 2, "pp": 2}], ids=str)
async def test_an_instance_of_any_shape_says_what_transformers_says(
    device: str, shape: dict[str, Any], model: TinyLlama, start_worker: StartWorker, gateway: Gateway
) -> None:
    """B14, B21: on too few blocks for all, the second time with prefixes that are there already."""
    limits = {"max_model_length": 128, "kv_cache_memory": SIXTEEN_BLOCKS}
    worker = start_worker("colocated", model.folder, device=device, **limits, **shape)
    stream = gateway.attach(await asyncio.to_thread(lambda: worker.grpc))
    expected = [model.greedy(tuple(prompt), OUTPUT) for prompt in PROMPTS]
    for _ in range(2):
        legs = [await stream.submit(prompt, max_tokens=OUTPUT) for prompt in PROMPTS]
        await stream.until_over(*legs)
        assert [leg.tokens for leg in legs] == expected
    await asyncio.to_thread(worker.wait_until_empty)
