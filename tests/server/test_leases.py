"""Parked KV lives as long as its lease: renewed it stays, expired it is an error (B6)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from distserve_testing.gateways import Gateway, GatewayStream, Leg
from distserve_testing.regions import random_region
from distserve_testing.workers import WorkerProcess

from distserve_proto import kv_pb2
from distserve_worker.server.kv_wire import layout_of, source_of
from distserve_worker.server.leases import Leases
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.tcp.pulling import TcpPulling

PROMPT = list(range(3, 103))
StartWorker = Callable[..., WorkerProcess]


LEASE_SECONDS = 2


@pytest.fixture(scope="module")
def brief(wide_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A prefill worker with short leases, which is known by a DNS name (B16)."""
    folder = tmp_path_factory.mktemp("brief")
    worker = WorkerProcess(
        "prefill", wide_llama, folder, advertise_host="localhost", max_model_length=2048, lease_seconds=LEASE_SECONDS
    )
    yield worker
    worker.kill()


@pytest.fixture
def prefill(brief: WorkerProcess) -> Iterator[WorkerProcess]:
    """The worker with short leases, which every test has to leave empty."""
    yield brief
    brief.wait_until_empty()


def expired(worker: WorkerProcess) -> float:
    return worker.metrics()["kv_leases_expired_total"]


def test_a_lease_holds_until_its_end_and_not_at_it() -> None:
    """B6."""
    leases = Leases(10.0)
    leases.grant("a", now=100.0)
    assert leases.holds("a", now=109.9)
    assert not leases.holds("a", now=110.0)
    assert leases.expired(now=109.9) == ()
    assert leases.expired(now=110.0) == ("a",)


def test_renewing_begins_a_lease_anew() -> None:
    """B6."""
    leases = Leases(10.0)
    leases.grant("a", now=100.0)
    assert leases.renew("a", now=109.0)
    assert leases.holds("a", now=118.9)


def test_an_expired_or_ended_lease_cannot_be_renewed() -> None:
    """B6: it was promised to nobody else, but its blocks may be somebody else's by now."""
    leases = Leases(10.0)
    leases.grant("late", now=100.0)
    leases.grant("ended", now=100.0)
    leases.end("ended")
    leases.end("never there")
    assert not leases.renew("late", now=110.0)
    assert not leases.renew("ended", now=101.0)
    assert not leases.holds("late", now=110.0)


async def test_an_expired_lease_frees_the_blocks_and_is_an_error(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B6: neither a pull nor a renewal brings it back."""
    before = expired(prefill)
    stream = gateway.attach(prefill.grpc)
    leg = await stream.submit(PROMPT)
    await stream.until_over(leg)
    prefill.wait_for(kv_blocks_held=0, requests_parked=0, kv_leases_expired_total=before + 1)
    request = kv_pb2.RenewRequest(incarnation=leg.handle.incarnation, request_id=leg.handle.request_id)
    for call in (gateway.pull(leg.handle), gateway.kv(prefill.grpc).Renew(request)):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert leg.failed is None


async def test_a_renewed_lease_outlives_its_length(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B6: its twin, parked at the same time and not renewed, tells that the time is over."""
    stream = gateway.attach(prefill.grpc)
    kept: Leg | None = None
    while kept is None:
        kept = await _renewed_past_its_length(prefill, gateway, stream)
    assert prefill.metrics()["kv_blocks_held"] == 7
    await stream.cancel(kept)


async def _renewed_past_its_length(prefill: WorkerProcess, gateway: Gateway, stream: GatewayStream) -> Leg | None:
    """None, which says nothing about leases, when this process was too slow to renew in time."""
    before = expired(prefill)
    asked = time.monotonic()
    kept, left = await stream.submit(PROMPT), await stream.submit(PROMPT)
    await stream.until_over(kept, left)
    request = kv_pb2.RenewRequest(incarnation=kept.handle.incarnation, request_id=kept.handle.request_id)
    while expired(prefill) == before:
        renewed, asked = asked, time.monotonic()
        try:
            response = await gateway.kv(prefill.grpc).Renew(request)
        except grpc.aio.AioRpcError:
            assert time.monotonic() > renewed + LEASE_SECONDS, "a lease has ended early"
            return None
        assert response.lease_milliseconds == LEASE_SECONDS * 1000
        await asyncio.sleep(0.1)
    return kept if await _offered(gateway, kept, asked) else None


async def _offered(gateway: Gateway, leg: Leg, since: float) -> kv_pb2.PullResponse | None:
    """The offer of a KV whose lease began after `since`; None when this process was too slow to ask for it in time."""
    try:
        return await gateway.pull(leg.handle)
    except grpc.aio.AioRpcError:
        assert time.monotonic() > since + LEASE_SECONDS, "a lease has ended early"
        return None


async def test_a_kv_that_expires_while_a_reader_holds_its_ticket_stays_until_the_reader_is_done(
    prefill: WorkerProcess, gateway: Gateway
) -> None:
    """B6: pinned blocks are not reused; what the reader gets is its own KV, whole."""
    stream, offer = gateway.attach(prefill.grpc), None
    while offer is None:
        asked, before = time.monotonic(), expired(prefill)
        leg = await stream.submit(PROMPT)
        await stream.until_over(leg)
        offer = await _offered(gateway, leg, asked)
    prefill.wait_for(kv_leases_expired_total=before + 1)
    assert prefill.metrics()["kv_blocks_held"] == 7
    source = source_of(offer.sources[0])
    memory = _memory(leg.handle)
    await asyncio.to_thread(TcpPulling().begin(source, memory, float("inf")).run)
    assert memory.region.memory[0].any()
    prefill.wait_until_empty()
    with pytest.raises(TransferError) as error:
        await asyncio.to_thread(TcpPulling().begin(source, memory, float("inf")).run)
    assert error.value.fault is Fault.REFUSED


async def test_decode_workers_that_die_leave_nothing_behind(
    start_worker: StartWorker, prefill: WorkerProcess, gateway: Gateway
) -> None:
    """B5, B6: sixteen KV caches wait for a decode worker that was killed; their leases free them."""
    doomed = start_worker("decode", max_running=1)  # the others wait
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(doomed.grpc)
    await decodes.until(lambda: bool(decodes.messages))
    first = await _sent_on(prefills, decodes)
    while not first.tokens:  # this process was too slow to send it on before its lease was over
        prefill.wait_until_empty()
        first = await _sent_on(prefills, decodes)
    doomed.kill()
    await decodes.until(lambda: decodes.ended is not None)
    prefill.wait_until_empty()


async def _sent_on(prefills: GatewayStream, decodes: GatewayStream) -> Leg:
    """The first of sixteen requests, once it is decoded or has failed."""
    prompts = [[5 + number] * 30 for number in range(16)]
    firsts = [await prefills.submit(prompt) for prompt in prompts]
    await prefills.until_over(*firsts)
    rests = [
        await decodes.submit(prompt, first.tokens, kv=first.handle)
        for prompt, first in zip(prompts, firsts, strict=True)
    ]
    await decodes.until(lambda: bool(rests[0].tokens or rests[0].failed))
    return rests[0]


def _memory(handle: kv_pb2.KvHandle) -> Selection:
    region = random_region(layout_of(handle.layout), len(handle.blocks))
    region.memory.zero_()
    return Selection(region, tuple(range(region.blocks)), region.shard)
