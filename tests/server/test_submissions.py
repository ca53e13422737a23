"""What is wrong with a submission is told by field and value, and costs nobody else anything."""

from collections.abc import Callable
from typing import Any

import pytest
from distserve_testing.gateways import Gateway
from distserve_testing.peers import scripted_peer
from distserve_testing.workers import WorkerProcess

from distserve_proto import kv_pb2, worker_pb2

PROMPT = list(range(3, 43))
StartWorker = Callable[..., WorkerProcess]


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"prompt": []}, "INVALID", "prompt"),
        ({"prompt": [3, 211]}, "INVALID", "211"),
        ({"prompt": [3], "output": [4_000_000_000]}, "INVALID", "4000000000"),
        ({"prompt": [3] * 2048}, "TOO_LONG", "2048"),
        ({"prompt": [3], "max_tokens": 2048}, "TOO_LONG", "2048"),
        ({"prompt": [3], "max_tokens": 0}, "INVALID", "max_tokens"),
        ({"prompt": [3], "output": [4, 5], "max_tokens": 2}, "INVALID", "max_tokens"),
        ({"prompt": [3], "sampling": worker_pb2.Sampling(temperature=-1, top_p=1)}, "INVALID", "temperature"),
        ({"prompt": [3], "sampling": worker_pb2.Sampling(temperature=float("nan"), top_p=1)}, "INVALID", "temperature"),
        ({"prompt": [3], "sampling": worker_pb2.Sampling(temperature=float("inf"), top_p=1)}, "INVALID", "temperature"),
        ({"prompt": [3], "sampling": worker_pb2.Sampling(temperature=1)}, "INVALID", "top_p"),
        ({"prompt": [3], "sampling": worker_pb2.Sampling(temperature=1, top_p=1.5)}, "INVALID", "top_p"),
        ({"prompt": [3], "request_id": ""}, "INVALID", "request_id"),
        ({"prompt": [3], "request_id": "x" * 257}, "INVALID", "request_id"),
        ({"prompt": [3], "kv": kv_pb2.KvHandle(request_id="r")}, "INVALID", "kv"),
    ],
)
async def test_prefill_refuses_what_makes_no_sense(
    prefill: WorkerProcess, gateway: Gateway, fields: dict[str, Any], code: str, named: str
) -> None:
    """B4: and the next request is served as if nothing had been."""
    stream = gateway.attach(prefill.grpc)
    wrong = await stream.submit(**fields)
    right = await stream.submit(PROMPT, max_tokens=1)
    await stream.until_over(wrong, right)
    assert wrong.failure == code
    assert wrong.failed is not None
    assert named in wrong.failed.message
    assert right.finished is not None


@pytest.mark.parametrize(
    ("output", "changes", "named"),
    [
        ([9], None, "kv:"),
        ([], {}, "output"),
        ([9], {"compatibility_key": "other"}, "kv.compatibility_key"),
        ([9], {"layout": kv_pb2.KvLayout(layers=1)}, "kv.layout"),
        ([9], {"shards": []}, "kv.shards"),
        ([9], {"shards": [kv_pb2.KvShard(layers=3, heads=11)]}, "kv.shards"),
        ([9], {"shards": [kv_pb2.KvShard(layers=3, heads=12)] * 1025}, "kv.shards"),
        ([9], {"tokens": 39}, "kv.tokens"),
        ([9, 10], {}, "kv.tokens"),
        ([9], {"blocks": [kv_pb2.BlockRef(index=1)]}, "kv.blocks"),
        ([9], {"address": "nowhere"}, "kv.address"),
        ([9], {"address": "::1:9000"}, "kv.address"),
        ([9], {"request_id": ""}, "kv:"),
    ],
)
async def test_decode_refuses_a_handle_that_does_not_fit(
    decode: WorkerProcess, gateway: Gateway, output: list[int], changes: dict[str, Any] | None, named: str
) -> None:
    """B4, B20."""
    description = await gateway.describe(decode.grpc)
    fields: dict[str, Any] = {
        "incarnation": "i",
        "request_id": "r",
        "address": "127.0.0.1:1",
        "layout": description.layout,
        "blocks": [kv_pb2.BlockRef(index=index) for index in range(3)],
        "tokens": len(PROMPT),
        "compatibility_key": description.compatibility_key,
        "shards": [kv_pb2.KvShard(layers=3, heads=12)],
    }
    handle = None if changes is None else kv_pb2.KvHandle(**fields | changes)
    stream = gateway.attach(decode.grpc)
    leg = await stream.submit(PROMPT, output, kv=handle)
    await stream.until_over(leg)
    assert leg.failure == "INVALID"
    assert leg.failed is not None
    assert named in leg.failed.message


async def test_a_full_queue_refuses_and_takes_again_later(start_worker: StartWorker, gateway: Gateway) -> None:
    prefill = start_worker("prefill", max_waiting=4, max_batch_tokens=16)
    stream = gateway.attach(prefill.grpc)
    legs = [await stream.submit(PROMPT, max_tokens=1) for _ in range(40)]
    await stream.until_over(*legs)
    refused = [leg for leg in legs if leg.failed is not None]
    assert {leg.failure for leg in refused} == {"QUEUE_FULL"}
    assert len(legs) - len(refused) >= 4
    metrics = prefill.metrics()
    assert metrics['requests_failed_total{code="QUEUE_FULL"}'] == len(refused)
    later = await stream.submit(PROMPT, max_tokens=1)
    await stream.until_over(later)
    assert later.finished is not None
    prefill.wait_until_empty()


async def test_an_id_that_is_in_use_is_refused_on_its_stream_only(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B5: another gateway may use the same ids; each cancels only its own."""
    stream, other = gateway.attach(prefill.grpc), gateway.attach(prefill.grpc)
    mine = await stream.submit(PROMPT, request_id="same")
    theirs = await other.submit(PROMPT, request_id="same")
    await stream.until_over(mine)
    await other.until_over(theirs)
    assert mine.handle.request_id != theirs.handle.request_id
    again = await stream.submit(PROMPT, request_id="same")
    await stream.until_over(again)
    assert again.failure == "INVALID"
    await stream.cancel(mine)
    prefill.wait_for(requests_parked=1)
    await other.cancel(theirs)


async def test_a_deadline_ends_a_leg_that_is_not_done(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B15: the deadline is the gateway's to choose; it counts for one leg."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    first = await prefills.submit(PROMPT, deadline_milliseconds=30_000)
    await prefills.until_over(first)
    rest = await decodes.submit(PROMPT, first.tokens, kv=first.handle, deadline_milliseconds=200)
    await decodes.until_over(rest)
    assert rest.failure == "DEADLINE"
    late = await prefills.submit([5] * 2000, deadline_milliseconds=1)
    await prefills.until_over(late)
    assert late.failure == "DEADLINE"


async def test_the_deadline_of_a_prefill_leg_does_not_end_its_parked_kv(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B6: from parking on the lease counts. A decode leg without its KV tells when the time is over."""
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    leg = await prefills.submit([3], deadline_milliseconds=3000)
    await prefills.until_over(leg)
    assert leg.parked is not None
    async with scripted_peer(await gateway.describe(decode.grpc)) as peer:
        clock = await decodes.submit([3], [4], kv=peer.handle(1), deadline_milliseconds=3000)
        await decodes.until_over(clock)
    assert clock.failure == "DEADLINE"
    assert (await gateway.pull(leg.handle)).sources
    assert leg.failed is None
    await prefills.cancel(leg)
