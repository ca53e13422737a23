"""Instances of different shapes: every rank of the decode side takes its layers and heads from those that hold them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from distserve_testing.gateways import Gateway, GatewayStream
from distserve_testing.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]
OUTPUT = 6
WITHIN_A_POD = {"cpu": "shm", "cuda": "cuda_ipc"}
PROMPTS = [[1, 96, 198, 26, 35], list(range(100, 116)), list(range(150, 167)), list(range(3, 103))]


async def _generated(prefills: GatewayStream, decodes: GatewayStream, device: str = "cpu") -> list[list[int]]:
    firsts = [await prefills.submit(prompt, max_tokens=OUTPUT) for prompt in PROMPTS]
    await prefills.until_over(*firsts)
    rests = [
        await decodes.submit(prompt, first.tokens, kv=first.handle, max_tokens=OUTPUT)
        for prompt, first in zip(PROMPTS, firsts, strict=True)
    ]
    await decodes.until_over(*rests)
    assert {rest.finished.stages.transport for rest in rests if rest.finished is not None} == {WITHIN_A_POD[device]}
    return [first.tokens + rest.tokens for first, rest in zip(firsts, rests, strict=True)]


@pytest.mark.parametrize(
    ("prefill_shape", "decode_shape"),
    [({"tp": 2}, {"pp": 2}), ({"pp": 3}, {"tp": 2}), ({"tp": 2, "pp": 2}, {})],
    ids=["tp2 to pp2", "pp3 to tp2", "tp2 pp2 to one"],
)
async def test_any_two_shapes_give_the_text_of_one_process(
    device: str,
    start_worker: StartWorker,
    prefill: WorkerProcess,
    decode: WorkerProcess,
    gateway: Gateway,
    prefill_shape: dict[str, Any],
    decode_shape: dict[str, Any],
) -> None:
    """B14, B21: handles come from the driver, KV from every rank."""
    expected = await _generated(gateway.attach(prefill.grpc), gateway.attach(decode.grpc))
    cut = (
        start_worker("prefill", device=device, **prefill_shape),
        start_worker("decode", device=device, **decode_shape),
    )
    for worker in cut:
        await asyncio.to_thread(worker.wait_until_empty)
    assert await _generated(gateway.attach(cut[0].grpc), gateway.attach(cut[1].grpc), device) == expected
    for worker in cut:
        worker.wait_until_empty()
