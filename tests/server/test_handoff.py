"""A request that is prefilled on one worker and decoded on another gives the tokens that one engine gives."""

import asyncio
from typing import Any

import pytest
from distserve_testing.gateways import Gateway, GatewayStream, Leg
from distserve_testing.workers import WorkerProcess

from distserve_proto import worker_pb2

OUTPUT = 8
PROMPTS = [[1, 96, 198, 26, 35], [50], list(range(100, 116)), list(range(150, 167)), list(range(3, 103))]


async def prefilled(stream: GatewayStream, prompt: list[int], **fields: Any) -> Leg:
    leg = await stream.submit(prompt, **fields)
    await stream.until_over(leg)
    return leg


async def alone(stream: GatewayStream, prompt: list[int], **fields: Any) -> list[int]:
    """Tokens from the prefill worker alone, which prefills prompt and output anew for each of them."""
    tokens: list[int] = []
    while len(tokens) < OUTPUT:
        leg = await prefilled(stream, prompt, output=tokens, **fields)
        tokens += leg.tokens
        await stream.cancel(leg)
    return tokens


@pytest.mark.parametrize(
    "sampling", [None, worker_pb2.Sampling(temperature=0.8, top_p=0.9, top_k=40, seed=7)], ids=["greedy", "sampled"]
)
async def test_a_request_continues_on_another_worker_with_the_same_tokens(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway, sampling: worker_pb2.Sampling | None
) -> None:
    """B14 for equal layouts: five requests of mixed lengths at once."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    fields: dict[str, Any] = {"sampling": sampling, "max_tokens": OUTPUT}
    expected = await asyncio.gather(*(alone(prefills, prompt, **fields) for prompt in PROMPTS))
    firsts = [await prefills.submit(prompt, **fields) for prompt in PROMPTS]
    await prefills.until_over(*firsts)
    rests = [
        await decodes.submit(prompt, first.tokens, kv=first.handle, **fields)
        for prompt, first in zip(PROMPTS, firsts, strict=True)
    ]
    await decodes.until_over(*rests)
    assert [first.tokens + rest.tokens for first, rest in zip(firsts, rests, strict=True)] == expected


async def test_a_leg_tells_its_stages_and_how_its_kv_travelled(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    before = decode.metrics().get('kv_pull_bytes_total{transport="shm"}', 0)
    first = await prefilled(prefills, list(range(3, 43)), max_tokens=4)
    assert first.parked is not None
    assert first.parked.stages.prefill > 0
    assert first.parked.stages.prefill_queue >= 0
    rest = await decodes.submit(list(range(3, 43)), first.tokens, kv=first.handle, max_tokens=4)
    await decodes.until_over(rest)
    assert rest.joined is not None
    assert rest.finished is not None
    stages = rest.finished.stages
    block_bytes = 3 * 2 * 12 * 16 * 64 * 4
    assert (stages.transport, stages.kv_bytes) == ("shm", 3 * block_bytes)
    assert (rest.joined.stages.transport, rest.joined.stages.kv_bytes) == ("shm", 3 * block_bytes)
    assert min(stages.decode_queue, stages.transfer, stages.decode) > 0
    assert decode.metrics()['kv_pull_bytes_total{transport="shm"}'] == before + 3 * block_bytes


async def test_one_token_ends_after_prefill(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B9: nothing is parked, there is no decode leg."""
    stream = gateway.attach(prefill.grpc)
    leg = await prefilled(stream, [3, 4, 5], max_tokens=1)
    assert len(leg.tokens) == 1
    assert leg.parked is None
    assert leg.finished is not None
    assert leg.finished.reason == worker_pb2.FINISH_REASON_LENGTH


async def test_a_stop_at_the_first_token_ends_after_prefill(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B9: the stop token is the last token."""
    stream = gateway.attach(prefill.grpc)
    leg = await prefilled(stream, [3, 4, 5], stop_token_ids=range(211))
    assert len(leg.tokens) == 1
    assert leg.finished is not None
    assert leg.finished.reason == worker_pb2.FINISH_REASON_STOP


async def test_without_a_limit_a_request_runs_to_the_models_length(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B9: an absent limit stays absent."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    prompt = [7] * 2000
    first = await prefilled(prefills, prompt)
    rest = await decodes.submit(prompt, first.tokens, kv=first.handle)
    await decodes.until_over(rest)
    assert rest.finished is not None
    assert rest.finished.reason == worker_pb2.FINISH_REASON_LENGTH
    assert len(prompt) + len(first.tokens) + len(rest.tokens) == 2048
