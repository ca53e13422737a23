"""A decode worker survives whatever a prefill worker does to it, and tells the gateway that the KV is lost."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from distserve_testing.gateways import Gateway, GatewayStream, Leg
from distserve_testing.peers import ScriptedPeer, scripted_peer
from distserve_testing.workers import WorkerProcess

from distserve_worker.server.pulling import MAX_PULLS, MAX_PULLS_OF_ONE_PEER
from distserve_worker.transfer.tcp.framing import HELLO_BYTES, TRAILER, Header, Status, pack_header

PROMPT = [5] * 40
LIMITS: dict[str, Any] = {"max_model_length": 2048, "kv_cache_memory": "64Mi", "max_batch_tokens": 256}
BLOCK_BYTES = 3 * 2 * 12 * 16 * 64 * 4


@pytest.fixture(scope="module")
def narrow_decode(wide_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A decode worker with room for one request at a time."""
    worker = WorkerProcess("decode", wide_llama, tmp_path_factory.mktemp("narrow"), **LIMITS | {"max_running": 1})
    yield worker
    worker.kill()


@pytest.fixture
def narrow(narrow_decode: WorkerProcess) -> Iterator[WorkerProcess]:
    """That worker, which every test has to leave empty."""
    yield narrow_decode
    narrow_decode.wait_until_empty()


@pytest.fixture
async def peer(decode: WorkerProcess, gateway: Gateway) -> AsyncIterator[ScriptedPeer]:
    async with scripted_peer(await gateway.describe(decode.grpc)) as scripted:
        yield scripted


async def decoding(gateway: Gateway, prefill: WorkerProcess, decode: WorkerProcess) -> tuple[GatewayStream, Leg]:
    """A stream to the decode worker, and a request of it that decodes and so takes the room of the next ones."""
    stream, prefills = gateway.attach(decode.grpc), gateway.attach(prefill.grpc)
    first = await prefills.submit(PROMPT)
    await prefills.until_over(first)
    running = await stream.submit(PROMPT, first.tokens, kv=first.handle)
    await stream.until(lambda: bool(running.tokens))
    return stream, running


async def accepted(peer: ScriptedPeer) -> socket.socket:
    """The data connection of the decode worker, with its hello read."""
    while True:
        sock, _ = await asyncio.to_thread(peer.listener.accept)
        sock.settimeout(60)
        if len(await asyncio.to_thread(sock.recv, HELLO_BYTES, socket.MSG_WAITALL)) == HELLO_BYTES:
            return sock
        sock.close()  # it only tried whether somebody listens


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION])
async def test_a_refused_pull_is_a_lost_kv(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer, code: grpc.StatusCode
) -> None:
    """B3: the gateway gets a typed failure, nothing stays held."""
    peer.refusal = code
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    await stream.until_over(leg)
    assert leg.failure == "KV_LOST"
    assert leg.failed is not None
    assert code.name in leg.failed.message
    assert peer.pulls == 1


async def test_too_many_readers_are_waited_for(decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer) -> None:
    peer.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)), max_tokens=2)
    await peer.until(lambda: peer.pulls >= 3)
    peer.refusal = None
    with await accepted(peer) as sock:
        data = pack_header(Header(Status.READY, 3, 3 * BLOCK_BYTES)) + bytes(3 * BLOCK_BYTES) + TRAILER
        await asyncio.to_thread(sock.sendall, data)
        await stream.until_over(leg)
    assert leg.finished is not None
    await peer.until(lambda: bool(peer.released))


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"", "closed"),
        (pack_header(Header(Status.REFUSED)), "refused"),
        (pack_header(Header(Status.READY, 2, 2 * BLOCK_BYTES)), "mismatch"),
        (pack_header(Header(Status.READY, 3, 3 * BLOCK_BYTES)) + bytes(2 * BLOCK_BYTES), "closed"),
        (pack_header(Header(Status.READY, 3, 3 * BLOCK_BYTES)) + bytes(3 * BLOCK_BYTES), "closed"),
    ],
    ids=["nothing", "refused", "fewer blocks", "cut", "no trailer"],
)
async def test_a_transfer_that_breaks_is_a_lost_kv(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer, answer: bytes, fault: str
) -> None:
    """B4: decode never starts from incomplete KV."""
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    with await accepted(peer) as sock:
        await asyncio.to_thread(sock.sendall, answer)
    await stream.until_over(leg)
    assert leg.failure == "KV_LOST"
    assert leg.failed is not None
    assert fault in leg.failed.message
    assert not leg.tokens
    assert not peer.released


@pytest.mark.parametrize(("field", "value"), [("sources", 0), ("sources", 2), ("nbytes", 1)])
async def test_an_offer_of_something_else_is_a_lost_kv(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer, field: str, value: Any
) -> None:
    setattr(peer, field, value)
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    await stream.until_over(leg)
    assert leg.failure == "KV_LOST"


async def test_a_peer_that_no_transport_reaches_is_told_apart_from_a_lost_kv(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B3: found out at the first meeting, before anything is asked for."""
    peer.ways = ["nccl", "shm"]  # there is no GPU, and the probe is none of shm
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    await stream.until_over(leg)
    assert leg.failure == "KV_UNREACHABLE"
    assert leg.failed is not None
    assert "nccl, shm" in leg.failed.message
    assert not peer.pulls


async def test_a_peer_is_asked_once_how_it_is_reached_until_something_fails(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B8: another incarnation is another peer."""
    stream = gateway.attach(decode.grpc)
    data = pack_header(Header(Status.READY, 3, 3 * BLOCK_BYTES)) + bytes(3 * BLOCK_BYTES) + TRAILER
    told = [("a", data, 1), ("a", data, 1), ("b", data, 2), ("b", b"", 2), ("b", data, 3)]
    for incarnation, answer, connects in told:
        handle = peer.handle(len(PROMPT), incarnation=incarnation)
        leg = await stream.submit(PROMPT, [1], kv=handle, max_tokens=2)
        with await accepted(peer) as sock:
            await asyncio.to_thread(sock.sendall, answer)
        await stream.until_over(leg)
        assert peer.connects == connects


async def test_a_cancelled_pull_ends_although_the_sender_stands_still(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B5: in the middle of the data, on the reading side."""
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    with await accepted(peer) as sock:
        await asyncio.to_thread(sock.sendall, pack_header(Header(Status.READY, 3, 3 * BLOCK_BYTES)) + bytes(1000))
        assert decode.metrics()["kv_blocks_held"] > 0
        await stream.cancel(leg)
        decode.wait_until_empty()
    assert not leg.over


async def test_decode_goes_on_while_all_pulls_from_one_peer_stand_still(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B3: one more leg than may pull from it waits for a peer that accepts and says nothing."""
    stream, prefills = gateway.attach(decode.grpc), gateway.attach(prefill.grpc)
    handle = peer.handle(len(PROMPT))
    slow = [await stream.submit(PROMPT, [1], kv=handle, max_tokens=10) for _ in range(MAX_PULLS_OF_ONE_PEER + 1)]
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_PULLS_OF_ONE_PEER):
            stack.enter_context(await accepted(peer))
        first = await prefills.submit(PROMPT, max_tokens=20)
        await prefills.until_over(first)
        rest = await stream.submit(PROMPT, first.tokens, kv=first.handle, max_tokens=20)
        await stream.until_over(rest)
        assert len(rest.tokens) == 19
        assert not any(leg.over for leg in slow)
        for leg in slow:
            await stream.cancel(leg)


async def test_a_lease_is_renewed_while_the_leg_waits_for_room(
    prefill: WorkerProcess, narrow: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B6: a lease of 0.3 s is kept alive; when it cannot be renewed any more the KV is lost at once."""
    stream, running = await decoding(gateway, prefill, narrow)
    peer.lease_milliseconds = 300
    waiting = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    await peer.until(lambda: peer.renewals >= 4)
    assert not waiting.over
    assert not peer.pulls
    peer.renew_refusal = grpc.StatusCode.NOT_FOUND
    await stream.until_over(waiting)
    assert waiting.failure == "KV_LOST"
    assert not running.over
    await stream.cancel(running)


async def test_a_renewal_that_does_not_get_through_is_tried_again(
    prefill: WorkerProcess, narrow: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B6: only what the prefill worker itself says of the lease ends the leg."""
    stream, running = await decoding(gateway, prefill, narrow)
    peer.lease_milliseconds = 10_000
    peer.renew_refusal = grpc.StatusCode.UNAVAILABLE
    waiting = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    await peer.until(lambda: peer.renewals >= 4)
    peer.renew_refusal = None
    renewals = peer.renewals
    await peer.until(lambda: peer.renewals > renewals)
    assert not waiting.over
    await stream.cancel(waiting)
    await stream.cancel(running)


async def test_a_lease_that_cannot_be_renewed_until_its_end_is_out_of_reach(
    prefill: WorkerProcess, narrow: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B6."""
    stream, running = await decoding(gateway, prefill, narrow)
    peer.lease_milliseconds = 500
    peer.renew_refusal = grpc.StatusCode.UNAVAILABLE
    waiting = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)))
    await stream.until_over(waiting)
    assert waiting.failure == "KV_UNREACHABLE"
    await stream.cancel(running)


async def test_a_lease_is_left_alone_once_the_pull_is_agreed_on(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B6: the lease of a KV that is being read may end, and its reader still gets it whole. A third is the clock."""
    peer.lease_milliseconds = 300
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)), max_tokens=2)
    other = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT), request_id="theirs#2"), max_tokens=2)
    socks = [await accepted(peer) for _ in range(2)]
    peer.renew_refusal = grpc.StatusCode.NOT_FOUND
    clock = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)), deadline_milliseconds=600)
    await stream.until_over(clock)
    assert clock.failure == "DEADLINE"
    renewals = peer.renewals
    data = pack_header(Header(Status.READY, 3, 3 * BLOCK_BYTES)) + bytes(3 * BLOCK_BYTES) + TRAILER
    for sock in socks:
        with sock:
            await asyncio.to_thread(sock.sendall, data)
    await stream.until_over(leg, other)
    assert (leg.failed, other.failed) == (None, None)
    assert peer.renewals == renewals


@pytest.mark.parametrize("port", ["grpc", "data"])
async def test_a_prefill_worker_that_cannot_be_reached_is_told_apart_from_a_lost_kv(
    decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer, port: str
) -> None:
    """B3: so that the gateway goes elsewhere."""
    stream = gateway.attach(decode.grpc)
    address = f"127.0.0.1:{peer.listener.getsockname()[1]}" if port == "grpc" else peer.address
    peer.listener.close()
    peer.data_address = "127.0.0.1:1"
    leg = await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT), address=address))
    await stream.until_over(leg)
    assert leg.failure == "KV_UNREACHABLE"


async def test_a_peer_with_too_many_readers_does_not_keep_others_from_pulling(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway, peer: ScriptedPeer
) -> None:
    """B3: more legs than there are slots wait for it."""
    peer.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    stream, prefills = gateway.attach(decode.grpc), gateway.attach(prefill.grpc)
    stuck = [await stream.submit(PROMPT, [1], kv=peer.handle(len(PROMPT)), max_tokens=2) for _ in range(MAX_PULLS + 1)]
    await peer.until(lambda: peer.pulls > MAX_PULLS)
    first = await prefills.submit(PROMPT, max_tokens=3)
    await prefills.until_over(first)
    rest = await stream.submit(PROMPT, first.tokens, kv=first.handle, max_tokens=3)
    await stream.until_over(rest)
    assert rest.finished is not None
    assert not any(leg.over for leg in stuck)
    for leg in stuck:
        await stream.cancel(leg)
