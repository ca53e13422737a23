"""One stream carries all requests of a gateway: bounded, and with the load of the worker."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from distserve_testing.gateways import Gateway
from distserve_testing.workers import WorkerProcess

from distserve_proto import worker_pb2, worker_pb2_grpc
from distserve_worker.server.outbox import Outbox
from distserve_worker.server.streams import MAX_MESSAGES, MAX_STREAMS
from distserve_worker.weights.tokenizer_digest import tokenizer_digest

PROMPT = list(range(3, 43))
StartWorker = Callable[..., WorkerProcess]


async def test_the_first_message_of_a_stream_is_the_load(prefill: WorkerProcess, gateway: Gateway) -> None:
    stream = gateway.attach(prefill.grpc)
    await stream.until(lambda: bool(stream.messages))
    load = stream.messages[0].load
    assert load.free_blocks == load.total_blocks > 0
    assert not stream.messages[0].events


async def test_a_stream_ends_that_its_gateway_ends_at_once(prefill: WorkerProcess, gateway: Gateway) -> None:
    """Also when the worker is in the middle of its first message, which happens in one of several tries."""
    for _ in range(50):
        stream = gateway.attach(prefill.grpc)
        await stream.half_close()
        assert stream.ended is grpc.StatusCode.OK


async def test_a_worker_describes_itself(
    wide_llama: Path, prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    """B20: equal weights, dtype and formats give equal keys on both sides, and the gateway can check its tokenizer."""
    one, other = await gateway.describe(prefill.grpc), await gateway.describe(decode.grpc)
    assert (one.phase, other.phase) == (worker_pb2.PHASE_PREFILL, worker_pb2.PHASE_DECODE)
    assert one.model == "test-model"
    assert one.compatibility_key == other.compatibility_key
    assert one.incarnation != other.incarnation
    assert one.max_model_length == 2048
    assert one.max_request_tokens >= 2048
    assert one.tokenizer_digest == other.tokenizer_digest == tokenizer_digest(wide_llama)
    assert (one.max_waiting, one.max_running) == (32, 0)
    assert (other.max_waiting, other.max_running) == (32, 64)
    assert one.load.total_blocks > 0


async def test_a_submission_counts_as_queued_at_once(prefill: WorkerProcess, gateway: Gateway) -> None:
    """B23: other gateways see it although the engine is in the middle of a step."""
    stream, other = gateway.attach(prefill.grpc), gateway.attach(prefill.grpc)
    legs = [await stream.submit([5] * 1000, max_tokens=1) for _ in range(4)]
    await other.until(lambda: other.load.queued_tokens >= 2000)
    await stream.until_over(*legs)
    await other.until(lambda: other.load.queued_tokens == 0)
    assert not any(message.events for message in other.messages)


async def test_a_stream_is_told_how_many_of_its_own_submissions_the_load_knows(
    prefill: WorkerProcess, gateway: Gateway
) -> None:
    """B23: a refused one counts too, and those of another gateway do not."""
    stream, other = gateway.attach(prefill.grpc), gateway.attach(prefill.grpc)
    legs = [await stream.submit([5], max_tokens=1), await stream.submit([])]
    await stream.until_over(*legs)
    await stream.until(lambda: stream.messages[-1].submits_taken == 2)
    assert [message.submits_taken for message in stream.messages] == sorted(
        message.submits_taken for message in stream.messages
    )
    assert {message.submits_taken for message in other.messages} <= {0}


async def test_the_tokens_of_a_step_come_in_one_message(
    prefill: WorkerProcess, decode: WorkerProcess, gateway: Gateway
) -> None:
    prefills, decodes = gateway.attach(prefill.grpc), gateway.attach(decode.grpc)
    firsts = [await prefills.submit([5 + number] * 20, max_tokens=60) for number in range(4)]
    await prefills.until_over(*firsts)
    rests = [
        await decodes.submit([5 + number] * 20, first.tokens, kv=first.handle, max_tokens=60)
        for number, first in enumerate(firsts)
    ]
    await decodes.until_over(*rests)
    with_tokens = [message for message in decodes.messages if any(event.tokens for event in message.events)]
    most = max(len(message.events) for message in with_tokens)
    assert most == 4
    assert len(with_tokens) < sum(len(leg.tokens) for leg in rests)


async def read_to_the_end(call: Any) -> None:
    async with asyncio.timeout(60):
        while await call.read() is not grpc.aio.EOF:
            pass


async def test_a_gateway_that_does_not_read_loses_its_stream_and_nobody_elses(
    prefill: WorkerProcess, gateway: Gateway
) -> None:
    """B5: refusals that it never reads fill the connection, then its queue; its parked KV is freed as well."""
    healthy = gateway.attach(prefill.grpc)
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
    async with grpc.aio.insecure_channel(prefill.grpc, options=narrow) as channel:
        call = worker_pb2_grpc.WorkerStub(channel).Attach()
        await call.write(worker_pb2.GatewayMessage(submit=worker_pb2.Submit(request_id="parked", prompt=PROMPT)))
        await asyncio.to_thread(prefill.wait_for, requests_parked=1)
        wrong = worker_pb2.GatewayMessage(submit=worker_pb2.Submit(request_id="x" * 300, prompt=PROMPT))
        for _ in range(MAX_MESSAGES + 450):
            await call.write(wrong)
        await asyncio.to_thread(prefill.wait_until_empty)
        leg = await healthy.submit(PROMPT, max_tokens=1)
        await healthy.until_over(leg)
        assert leg.finished is not None
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await read_to_the_end(call)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_the_number_of_streams_is_bounded(prefill: WorkerProcess, gateway: Gateway) -> None:
    streams = [gateway.attach(prefill.grpc) for _ in range(MAX_STREAMS + 1)]
    for stream in streams:
        await stream.until(lambda stream=stream: bool(stream.messages) or stream.ended is not None)
    refused = [stream for stream in streams if stream.ended is not None]
    assert [stream.ended for stream in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED]


def event_of(message: worker_pb2.WorkerMessage | None) -> list[str]:
    assert message is not None
    return [event.request_id for event in message.events]


async def test_events_of_one_step_make_one_message() -> None:
    outbox = Outbox(4)
    outbox.event("a").tokens.append(1)
    outbox.event("b").tokens.append(2)
    outbox.event("a").tokens.append(3)
    outbox.flush(worker_pb2.Load(running=2))
    message = await outbox.next()
    assert event_of(message) == ["a", "b"]
    assert message is not None
    assert list(message.events[0].tokens) == [1, 3]
    assert message.load.running == 2


async def test_only_the_latest_load_waits_and_an_unchanged_one_is_not_repeated() -> None:
    outbox = Outbox(4)
    for running in (1, 2, 3, 3):
        outbox.flush(worker_pb2.Load(running=running))
    outbox.close()
    message = await outbox.next()
    assert message is not None
    assert message.load.running == 3
    assert await outbox.next() is None


async def test_the_count_of_submissions_is_told_even_where_the_load_came_out_the_same() -> None:
    outbox = Outbox(4)
    outbox.flush(worker_pb2.Load(waiting=1))
    assert await outbox.next() is not None
    outbox.submits_taken += 1
    outbox.flush(worker_pb2.Load(waiting=1))
    message = await outbox.next()
    assert message is not None
    assert message.submits_taken == 1


async def test_messages_that_nobody_takes_overflow() -> None:
    outbox = Outbox(2)
    for number in range(3):
        outbox.event(str(number))
        outbox.flush(worker_pb2.Load())
    assert outbox.overflowed.is_set()
    assert await outbox.next() is None


async def test_closing_lets_what_is_queued_out_first() -> None:
    outbox = Outbox(2)
    outbox.event("last")
    outbox.flush(worker_pb2.Load())
    outbox.close()
    assert event_of(await outbox.next()) == ["last"]
    assert await outbox.next() is None
