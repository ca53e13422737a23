"""Workers die without a word; the others notice, and meet their successors by themselves."""

import asyncio
from collections.abc import Callable

import grpc
import pytest
from distserve_testing.gateways import Gateway
from distserve_testing.workers import WorkerProcess

PROMPT = list(range(3, 103))
StartWorker = Callable[..., WorkerProcess]


async def test_a_restarted_prefill_worker_is_met_again_without_a_restart_of_decode(
    start_worker: StartWorker, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B8: same address, new incarnation; handles of the old one are refused."""
    old = start_worker("prefill")
    ports = {f"{name}_port": old.port(name) for name in ("grpc", "data", "http")}
    prefills, decodes = gateway.attach(old.grpc), gateway.attach(decode.grpc)
    first, kept = await prefills.submit(PROMPT, max_tokens=6), await prefills.submit(PROMPT)
    await prefills.until_over(first, kept)
    rest = await decodes.submit(PROMPT, first.tokens, kv=first.handle, max_tokens=6)
    await decodes.until_over(rest)
    expected = first.tokens + rest.tokens
    old.kill()
    await prefills.until(lambda: prefills.ended is not None)
    new = start_worker("prefill", **ports)
    assert new.grpc == old.grpc
    assert new.listening["incarnation"] != old.listening["incarnation"]

    stale = await decodes.submit(PROMPT, kept.tokens, kv=kept.handle)
    await decodes.until_over(stale)
    assert stale.failure == "KV_LOST"
    assert stale.failed is not None
    assert "incarnation" in stale.failed.message
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await gateway.pull(kept.handle)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION

    prefills = gateway.attach(new.grpc)
    first = await prefills.submit(PROMPT, max_tokens=6)
    await prefills.until_over(first)
    rest = await decodes.submit(PROMPT, first.tokens, kv=first.handle, max_tokens=6)
    await decodes.until_over(rest)
    assert first.tokens + rest.tokens == expected


async def test_a_killed_prefill_worker_fails_those_that_wait_for_their_kv_and_only_those(
    start_worker: StartWorker, gateway: Gateway
) -> None:
    """B3: the leg that waits for room learns of it by its renewals; the one that was pulled goes on."""
    dying, decode = start_worker("prefill", lease_seconds=3), start_worker("decode", max_running=1)
    prefills, decodes = gateway.attach(dying.grpc), gateway.attach(decode.grpc)
    firsts = [await prefills.submit(PROMPT) for _ in range(2)]
    await prefills.until_over(*firsts)
    running, waiting = [await decodes.submit(PROMPT, first.tokens, kv=first.handle) for first in firsts]
    await decodes.until(lambda: running.joined is not None)
    dying.kill()
    await decodes.until_over(waiting)
    assert waiting.failure == "KV_UNREACHABLE"
    assert running.failed is None
    before = len(running.tokens)
    await decodes.until(lambda: running.over or len(running.tokens) > before)
    assert running.failed is None
    await decodes.cancel(running)


async def test_a_killed_gateway_connection_frees_both_sides(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B5: sixteen requests in all stages, both streams end in the middle."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    firsts = [await prefills.submit([5 + number] * 40, max_tokens=100) for number in range(16)]
    await prefills.until_over(*firsts[:8])
    for number, first in enumerate(firsts[:8]):
        await decodes.submit([5 + number] * 40, first.tokens, kv=first.handle, max_tokens=100)
    await asyncio.gather(prefills.close(), decodes.close())
    prefill.wait_until_empty()
    decode.wait_until_empty()
