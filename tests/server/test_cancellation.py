"""Whoever leaves at whatever moment, both sides free everything (B5)."""

import socket
from collections.abc import Awaitable, Callable

import pytest
from distserve_testing.gateways import Gateway, GatewayStream, Leg
from distserve_testing.workers import WorkerProcess

from distserve_proto.addresses import parse_address
from distserve_worker.transfer.tcp.framing import HEADER_BYTES, pack_hello

PROMPT = list(range(3, 203)) * 2
Leave = Callable[[GatewayStream, Leg], Awaitable[None]]


async def by_cancel(stream: GatewayStream, leg: Leg) -> None:
    await stream.cancel(leg)


async def by_closing(stream: GatewayStream, _: Leg) -> None:
    await stream.close()


async def by_half_closing(stream: GatewayStream, _: Leg) -> None:
    await stream.half_close()


LEAVING = pytest.mark.parametrize("leave", [by_cancel, by_closing, by_half_closing])


async def parked(stream: GatewayStream, prompt: list[int] = PROMPT) -> Leg:
    leg = await stream.submit(prompt)
    await stream.until_over(leg)
    assert leg.parked is not None
    return leg


@LEAVING
async def test_before_prefill(prefill: WorkerProcess, gateway: Gateway, leave: Leave) -> None:
    """B5: queued behind other prompts; none of them gets to its end unless it was about to."""
    stream = gateway.attach(prefill.grpc)
    legs = [await stream.submit(PROMPT) for _ in range(6)]
    for leg in legs:
        await leave(stream, leg)
    prefill.wait_until_empty()
    assert all(leg.failed is None for leg in legs)


@LEAVING
async def test_while_parked(prefill: WorkerProcess, gateway: Gateway, leave: Leave) -> None:
    """B5."""
    stream = gateway.attach(prefill.grpc)
    leg = await parked(stream)
    assert prefill.metrics()["kv_blocks_held"] == 25
    await leave(stream, leg)
    prefill.wait_until_empty()


@LEAVING
async def test_while_a_reader_holds_a_ticket(prefill: WorkerProcess, gateway: Gateway, leave: Leave) -> None:
    """B5: the offer is withdrawn, the ticket is worth nothing."""
    stream = gateway.attach(prefill.grpc)
    leg = await parked(stream)
    (source,) = (await gateway.pull(leg.handle)).sources
    await leave(stream, leg)
    prefill.wait_until_empty()
    assert source.endpoint == prefill.listening["data"]


@LEAVING
async def test_while_a_reader_stands_still_in_the_middle_of_a_pull(
    prefill: WorkerProcess, gateway: Gateway, leave: Leave
) -> None:
    """B5: the transfer is cut, then its blocks are freed."""
    stream = gateway.attach(prefill.grpc)
    leg = await parked(stream)
    (source,) = (await gateway.pull(leg.handle)).sources
    address = parse_address(source.endpoint)
    with socket.create_connection((address.host, address.port), timeout=60) as reader:
        reader.sendall(pack_hello(source.ticket))
        assert reader.recv(HEADER_BYTES)
        await leave(stream, leg)
        prefill.wait_until_empty()


@LEAVING
async def test_while_decode_waits_for_room(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway, leave: Leave
) -> None:
    """B5: the first request reserves almost all blocks of the decode worker, the second waits."""
    prefills, others, decodes = (gateway.attach(worker.grpc) for worker in (prefill, decode, decode))
    first, second = await parked(prefills), await parked(prefills)
    running = await others.submit(PROMPT, first.tokens, kv=first.handle)
    await others.until(lambda: bool(running.tokens))
    waiting = await decodes.submit(PROMPT, second.tokens, kv=second.handle)
    await decodes.until(lambda: decodes.load.waiting == 1)
    await leave(decodes, waiting)
    await others.until(lambda: others.load.waiting == 0)
    assert not waiting.tokens
    await prefills.cancel(second)
    await others.cancel(running)


@LEAVING
async def test_during_decode(prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway, leave: Leave) -> None:
    """B5."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    first = await parked(prefills)
    rest = await decodes.submit(PROMPT, first.tokens, kv=first.handle)
    await decodes.until(lambda: len(rest.tokens) > 1)
    await leave(decodes, rest)
    decode.wait_until_empty()
    assert rest.finished is None


async def test_during_the_pull_on_the_reading_side(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B5: a sender that never sends keeps the decode worker in the middle of its pull."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    first = await parked(prefills)
    offers = [await gateway.pull(first.handle) for _ in range(16)]  # all that there are
    rest = await decodes.submit(PROMPT, first.tokens, kv=first.handle)
    await decodes.until(lambda: decodes.load.free_blocks < decodes.load.total_blocks and not decodes.load.running)
    await decodes.cancel(rest)
    decode.wait_until_empty()
    assert not rest.over
    assert len({offer.sources[0].ticket for offer in offers}) == len(offers)
    await prefills.cancel(first)


async def test_events_of_a_cancelled_request_do_not_come(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B5: a later request on the same stream shows that nothing was in between."""
    stream = gateway.attach(prefill.grpc)
    cancelled = [await stream.submit(PROMPT) for _ in range(3)]
    for leg in cancelled[1:]:
        await stream.cancel(leg)
    last = await parked(stream, [5, 6])
    assert not any(leg.tokens for leg in cancelled[1:])
    await stream.cancel(cancelled[0])
    await stream.cancel(last)


async def test_cancelling_what_is_not_there_changes_nothing(prefill: WorkerProcess, gateway: Gateway) -> None:
    stream, other = gateway.attach(prefill.grpc), gateway.attach(prefill.grpc)
    leg = await parked(stream)
    await stream.cancel(Leg("nobody"))
    await other.cancel(leg)
    assert len((await parked(other, [4])).tokens) == 1
    assert prefill.metrics()["requests_parked"] == 2
    await stream.cancel(leg)
    await other.close()
