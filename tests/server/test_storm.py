"""Many requests that end in every possible way leave both workers empty, and those that stay get their own text."""

import asyncio
import random

from distserve_testing.gateways import Gateway, GatewayStream, Leg
from distserve_testing.workers import WorkerProcess

REQUESTS = 60
TOKENS = 24
PATIENT = [10_000] * 3


async def until_told(stream: GatewayStream, leg: Leg, patience: int) -> bool:
    """Wait for the end of a leg, but not longer than `patience` messages of the stream; whether it ended."""
    last = len(stream.messages) + patience
    await stream.until(lambda: leg.over or len(stream.messages) >= last)
    return leg.over


async def one_request(gateway: Gateway, prefill: WorkerProcess, decode: WorkerProcess, number: int) -> list[int] | None:
    """Its tokens, or None when it was given up somewhere on its way."""
    dice = random.Random(number)
    prompt = [3 + number % 7] * dice.choice([1, 16, 17, 150])
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    patience = dice.choice([1, 4, *PATIENT])
    first = await prefills.submit(prompt, max_tokens=TOKENS)
    if await until_told(prefills, first, patience) and first.failed is None:
        rest = await decodes.submit(prompt, first.tokens, kv=first.handle, max_tokens=TOKENS)
        if await until_told(decodes, rest, dice.choice([1, 3, *PATIENT])) and rest.failed is None:
            await asyncio.gather(prefills.close(), decodes.close())
            return [len(prompt), *first.tokens, *rest.tokens]
        await decodes.close()
        assert rest.failed is None or rest.failure == "QUEUE_FULL"
    await prefills.close()
    assert first.failed is None or first.failure == "QUEUE_FULL"
    return None


async def test_sixty_requests_of_which_many_are_given_up(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B5, B7: equal prompts have equal outputs, whoever's blocks theirs were before."""
    some_at_once = asyncio.Semaphore(12)

    async def bounded(number: int) -> list[int] | None:
        async with some_at_once:
            return await one_request(gateway, prefill, decode, number)

    results = await asyncio.gather(*(bounded(number) for number in range(REQUESTS)))
    outputs: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for number, result in enumerate(results):
        if result is not None:
            outputs.setdefault((number % 7, result[0]), set()).add(tuple(result[1:]))
    assert sum(result is not None for result in results) >= REQUESTS // 4
    assert all(len(different) == 1 for different in outputs.values())
    assert all(len(tokens) == TOKENS for different in outputs.values() for tokens in different)
    prefill.wait_until_empty()
    decode.wait_until_empty()
