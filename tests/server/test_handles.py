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
    assert list(handle.shards) == [kv_pb2.KvShard(layers=3, heads=12)]
    assert handle.address == prefill.grpc
    assert handle.tokens == len(PROMPT)
    assert len(handle.blocks) == 7
    (source,) = (await gateway.pull(handle)).sources
    assert source.bytes == 7 * 3 * 2 * 12 * 16 * 64 * 4


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


def other_shards(handle: kv_pb2.KvHandle) -> None:
    handle.shards[0].first_head = 1


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
        (other_shards, "shards"),
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
    assert (await gateway.pull(leg.handle)).sources


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
    assert (await gateway.pull(second.handle)).sources


def part(first_layer: int, layers: int, first_head: int, heads: int) -> kv_pb2.KvShard:
    return kv_pb2.KvShard(first_layer=first_layer, layers=layers, first_head=first_head, heads=heads)


def piece(of: kv_pb2.KvShard, rank: int = 0, transport: str = "tcp", reader_rank: int = 0) -> kv_pb2.Piece:
    return kv_pb2.Piece(rank=rank, part=of, transport=transport, reader_rank=reader_rank)


@pytest.mark.parametrize(
    ("pieces", "field"),
    [
        ([], "pieces"),
        ([piece(part(0, 3, 0, 12), rank=1)], "pieces[0].rank"),
        ([piece(part(0, 3, 0, 12), transport="telepathy")], "pieces[0].transport"),
        ([piece(part(0, 4, 0, 12))], "pieces[0].part"),
        ([piece(part(0, 3, 12, 1))], "pieces[0].part"),
        ([piece(part(0, 0, 0, 12))], "pieces[0].part"),
        ([piece(part(0, 3, 2**32 - 1, 2))], "pieces[0].part"),
        ([piece(part(0, 3, 0, 6)), piece(part(2, 1, 5, 2))], "pieces[1].part"),
    ],
    ids=["none", "no such rank", "no such way", "more layers", "other heads", "nothing", "wrapped", "twice"],
)
async def test_pieces_that_cannot_be_had_are_refused_by_field(
    gateway: Gateway, stream: GatewayStream, pieces: list[kv_pb2.Piece], field: str
) -> None:
    """B14: never wrong bytes."""
    code, text = await refused(gateway, (await parked(stream)).handle, pieces=pieces)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert field in text


async def test_parts_of_a_kv_are_offered_one_by_one(gateway: Gateway, stream: GatewayStream) -> None:
    """B14: two ranks of a reader may want the same head."""
    handle = (await parked(stream)).handle
    parts = [part(0, 3, 0, 6), part(0, 2, 6, 6), part(2, 1, 6, 6)]
    pieces = [piece(one, reader_rank=rank) for rank in range(2) for one in parts]
    sources = (await gateway.pull(handle, pieces)).sources
    assert [source.bytes // (7 * 2 * 16 * 64 * 4) for source in sources] == [18, 12, 6] * 2
    assert len({source.ticket for source in sources}) == len(sources)


async def test_a_worker_tells_how_its_ranks_are_reached(
    prefill: WorkerProcess, gateway: Gateway, stream: GatewayStream
) -> None:
    """B8: of this boot only."""
    handle = (await parked(stream)).handle
    (rank,) = (await gateway.kv(prefill.grpc).Connect(kv_pb2.ConnectRequest(incarnation=handle.incarnation))).ranks
    assert rank.transports[-1] == kv_pb2.Transport(name="tcp", probe=prefill.listening["data"].encode())
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await gateway.kv(prefill.grpc).Connect(kv_pb2.ConnectRequest(incarnation="old"))
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_the_number_of_readers_is_bounded(gateway: Gateway, stream: GatewayStream) -> None:
    handle = (await parked(stream)).handle
    offers = [await gateway.pull(handle) for _ in range(16)]
    assert len({offer.sources[0].ticket for offer in offers}) == 16
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
    assert (await gateway.pull(handle)).sources
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await gateway.kv(prefill.grpc).Renew(kv_pb2.RenewRequest(incarnation="old", request_id=handle.request_id))
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
