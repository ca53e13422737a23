"""A handle gives its own KV, whole, or nothing: never somebody else's text."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from distserve_testing.gateways import Gateway, GatewayStream, Leg
from distserve_testing.workers import WorkerProcess

from distserve_proto import kv_pb2

PROMPT = list(range(3, 103))
Change = Callable[[kv_pb2.KvHandle], None]


@pytest.fixture
async def stream(prefill: WorkerProcess, gateway: Gateway) -> AsyncIterator[GatewayStream]:
    opened = gateway.attach(prefill.grpc)
    yield opened
    await opened.close()


async def parked(stream: GatewayStream) -> Leg:
    leg = await stream.submit(PROMPT)
    await stream.until_over(leg)
    return leg


async def refused(gateway: Gateway, handle: kv_pb2.KvHandle, **options: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await gateway.pull(handle, **options)
    return error.value.code(), error.value.details() or ""


async def test_a_handle_describes_the_parked_kv(
    prefill: WorkerProcess, gateway: Gateway, stream: GatewayStream
) -> None:
    description = await gateway.describe(prefill.grpc)
    handle = (await parked(stream)).handle
    assert handle.incarnation == description.incarnation == prefill.listening["incarnation"]
    assert handle.compatibility_key == description.compatibility_key
    assert handle.layout == description.layout
    assert handle.address == prefill.grpc
    assert handle.tokens == len(PROMPT)
    assert len(handle.blocks) == 7
    offer = await gateway.pull(handle)
    assert offer.bytes == 7 * 3 * 2 * 12 * 16 * 64 * 4
    assert offer.transport == "tcp"


def older_incarnation(handle: kv_pb2.KvHandle) -> None:
    handle.incarnation = "an earlier boot"


def freed_block(handle: kv_pb2.KvHandle) -> None:
    handle.blocks[3].generation += 1


def other_block(handle: kv_pb2.KvHandle) -> None:
    handle.blocks[0].index += 1


def fewer_blocks(handle: kv_pb2.KvHandle) -> None:
    del handle.blocks[-1]


def other_weights(handle: kv_pb2.KvHandle) -> None:
    handle.compatibility_key = "other weights"


def other_layout(handle: kv_pb2.KvHandle) -> None:
    handle.layout.kv_heads = 6


def fewer_tokens(handle: kv_pb2.KvHandle) -> None:
    handle.tokens -= 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (older_incarnation, "incarnation"),
        (freed_block, "blocks"),
        (other_block, "blocks"),
        (fewer_blocks, "blocks"),
        (other_weights, "compatibility_key"),
        (other_layout, "layout"),
        (fewer_tokens, "tokens"),
    ],
)
async def test_a_handle_that_differs_in_anything_is_refused_by_field(
    gateway: Gateway, stream: GatewayStream, change: Change, field: str
) -> None:
    """B7, B8, B20."""
    leg = await parked(stream)
    forged = kv_pb2.KvHandle()
    forged.CopyFrom(leg.handle)
    change(forged)
    code, text = await refused(gateway, forged)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert f"handle.{field}" in text
    assert (await gateway.pull(leg.handle)).bytes


async def test_the_blocks_of_another_request_cannot_be_had(gateway: Gateway, stream: GatewayStream) -> None:
    """B7: a handle that mixes the name of one request with the blocks of another."""
    mine, theirs = await parked(stream), await parked(stream)
    mixed = kv_pb2.KvHandle()
    mixed.CopyFrom(mine.handle)
    del mixed.blocks[:]
    mixed.blocks.extend(theirs.handle.blocks)
    code, _ = await refused(gateway, mixed)
    assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_blocks_that_were_freed_and_reused_are_not_read(gateway: Gateway, stream: GatewayStream) -> None:
    """B7: the same blocks are given out again at once, under another generation."""
    first = await parked(stream)
    old = first.handle
    await stream.cancel(first)
    second = await parked(stream)
    assert {block.index for block in second.handle.blocks} == {block.index for block in old.blocks}
    code, _ = await refused(gateway, old)
    assert code is grpc.StatusCode.NOT_FOUND
    forged = kv_pb2.KvHandle()
    forged.CopyFrom(second.handle)
    del forged.blocks[:]
    forged.blocks.extend(old.blocks)
    code, _ = await refused(gateway, forged)
    assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_request_id_that_is_used_again_does_not_revive_an_old_handle(
    prefill: WorkerProcess, gateway: Gateway, stream: GatewayStream
) -> None:
    """B7: neither can an old handle release the new KV."""
    first = await stream.submit(PROMPT, request_id="same")
    await stream.until_over(first)
    await stream.cancel(first)
    second = await stream.submit(PROMPT, request_id="same")
    await stream.until_over(second)
    assert (await refused(gateway, first.handle))[0] is grpc.StatusCode.NOT_FOUND
    old = kv_pb2.ReleaseRequest(incarnation=first.handle.incarnation, request_id=first.handle.request_id)
    await gateway.kv(prefill.grpc).Release(old)
    assert (await gateway.pull(second.handle)).bytes


async def test_without_a_common_transport_there_is_no_pull(gateway: Gateway, stream: GatewayStream) -> None:
    code, text = await refused(gateway, (await parked(stream)).handle, transports=["nccl", "shm"])
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "nccl" in text


async def test_the_readers_first_choice_that_exists_is_taken(gateway: Gateway, stream: GatewayStream) -> None:
    offer = await gateway.pull((await parked(stream)).handle, transports=["nccl", "tcp"])
    assert offer.transport == "tcp"


async def test_the_number_of_readers_is_bounded(gateway: Gateway, stream: GatewayStream) -> None:
    handle = (await parked(stream)).handle
    offers = [await gateway.pull(handle) for _ in range(16)]
    assert len({offer.ticket for offer in offers}) == 16
    assert (await refused(gateway, handle))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_releasing_frees_and_is_idempotent(
    prefill: WorkerProcess, gateway: Gateway, stream: GatewayStream
) -> None:
    handle = (await parked(stream)).handle
    request = kv_pb2.ReleaseRequest(incarnation=handle.incarnation, request_id=handle.request_id)
    for _ in range(2):
        await gateway.kv(prefill.grpc).Release(request)
    prefill.wait_until_empty()
    assert (await refused(gateway, handle))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_handle_of_another_boot_releases_nothing(
    prefill: WorkerProcess, gateway: Gateway, stream: GatewayStream
) -> None:
    """B8."""
    handle = (await parked(stream)).handle
    await gateway.kv(prefill.grpc).Release(kv_pb2.ReleaseRequest(incarnation="old", request_id=handle.request_id))
    assert (await gateway.pull(handle)).bytes
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await gateway.kv(prefill.grpc).Renew(kv_pb2.RenewRequest(incarnation="old", request_id=handle.request_id))
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
