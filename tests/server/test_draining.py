"""SIGTERM: not ready, no new work, what runs is finished, then the process ends well (B27)."""

import signal
from collections.abc import Callable

import httpx
from distserve_testing.gateways import Gateway
from distserve_testing.workers import WorkerProcess

PROMPT = list(range(3, 43))
StartWorker = Callable[..., WorkerProcess]


async def test_a_prefill_worker_waits_until_its_parked_kv_is_taken(
    start_worker: StartWorker, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B18, B27: and goes on with what others of its gateways' workers have begun."""
    prefill = start_worker("prefill", drain_seconds=600)
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    first = await prefills.submit(PROMPT, max_tokens=5)
    await prefills.until_over(first)
    assert prefill.get("/readyz").status_code == httpx.codes.OK
    prefill.process.send_signal(signal.SIGTERM)
    await prefills.until(lambda: prefills.load.draining)
    answer = prefill.get("/readyz")
    assert (answer.status_code, answer.text.strip()) == (httpx.codes.SERVICE_UNAVAILABLE, "draining")
    assert prefill.get("/healthz").status_code == httpx.codes.OK
    newcomer = gateway.attach(prefill.grpc)
    late, refused = await prefills.submit(PROMPT), await newcomer.submit(PROMPT, [7])
    await prefills.until_over(late)
    await newcomer.until_over(refused)
    assert (late.failure, refused.failure) == ("DRAINING", "DRAINING")
    moved = await prefills.submit(PROMPT, [7], max_tokens=5)
    await prefills.until_over(moved)
    assert len(moved.tokens) == 1
    await prefills.cancel(moved)
    rest = await decodes.submit(PROMPT, first.tokens, kv=first.handle, max_tokens=5)
    await decodes.until_over(rest)
    assert len(rest.tokens) == 4
    assert prefill.exit_status() == 0


async def test_a_decode_worker_finishes_what_it_has_and_what_its_gateways_have_begun(
    start_worker: StartWorker, prefill: WorkerProcess, gateway: Gateway
) -> None:
    """B18, B27: the one that waits for room included; a gateway that comes now has to go elsewhere."""
    decode = start_worker("decode", max_model_length=256, max_running=1, drain_seconds=600)
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    firsts = [await prefills.submit(PROMPT, max_tokens=200) for _ in range(4)]
    await prefills.until_over(*firsts)
    rests = [await decodes.submit(PROMPT, first.tokens, kv=first.handle, max_tokens=200) for first in firsts[:2]]
    await decodes.until(lambda: bool(rests[0].tokens))
    decode.process.send_signal(signal.SIGTERM)
    await decodes.until(lambda: decodes.load.draining)
    newcomer = gateway.attach(decode.grpc)
    refused = await newcomer.submit(PROMPT, firsts[3].tokens, kv=firsts[3].handle, max_tokens=200)
    rests.append(await decodes.submit(PROMPT, firsts[2].tokens, kv=firsts[2].handle, max_tokens=200))
    await newcomer.until_over(refused)
    assert refused.failure == "DRAINING"
    assert not rests[1].over
    await decodes.until_over(*rests)
    assert [len(rest.tokens) for rest in rests] == [199, 199, 199]
    assert decode.exit_status() == 0
    await prefills.cancel(firsts[3])


async def test_draining_has_an_end(start_worker: StartWorker, gateway: Gateway) -> None:
    """B27: KV that nobody takes does not keep the worker alive."""
    prefill = start_worker("prefill", drain_seconds=1)
    stream = gateway.attach(prefill.grpc)
    leg = await stream.submit(PROMPT)
    await stream.until_over(leg)
    prefill.process.send_signal(signal.SIGTERM)
    await stream.until(lambda: stream.ended is not None)
    assert leg.failure == "DRAINING"
    assert prefill.exit_status() == 0
    assert not prefill.termination_log.exists()


async def test_an_idle_worker_ends_at_once_and_gateways_see_their_streams_end(
    start_worker: StartWorker, gateway: Gateway
) -> None:
    decode = start_worker("decode", drain_seconds=600)
    stream = gateway.attach(decode.grpc)
    await stream.until(lambda: bool(stream.messages))
    decode.process.send_signal(signal.SIGINT)
    assert decode.exit_status() == 0
    await stream.until(lambda: stream.ended is not None)
    assert stream.load.draining
