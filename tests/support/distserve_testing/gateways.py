"""A gateway's side of the wire, as raw as a test needs it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc.aio

from distserve_proto import kv_pb2, kv_pb2_grpc, worker_pb2, worker_pb2_grpc
from distserve_proto.channels import CLIENT_OPTIONS

WAIT_SECONDS: Final = 60


@dataclass(slots=True)
class Leg:
    """What a worker told about one submission."""

    request_id: str
    tokens: list[int] = field(default_factory=list)
    started: worker_pb2.Started | None = None
    parked: worker_pb2.Parked | None = None
    joined: worker_pb2.Joined | None = None
    finished: worker_pb2.Finished | None = None
    failed: worker_pb2.Failed | None = None
    put_back: worker_pb2.PutBack | None = None

    @property
    def over(self) -> bool:
        """Whether no more tokens come."""
        return any((self.parked, self.finished, self.failed, self.put_back))

    @property
    def failure(self) -> str:
        """Name of the failure code."""
        assert self.failed is not None, self
        return worker_pb2.FailureCode.Name(self.failed.code).removeprefix("FAILURE_CODE_")

    @property
    def handle(self) -> kv_pb2.KvHandle:
        """Handle of the parked KV."""
        assert self.parked is not None, self
        return self.parked.kv

    def take(self, event: worker_pb2.RequestEvent) -> None:
        """Add one event."""
        self.tokens += event.tokens
        change = event.WhichOneof("change")
        if change is not None:
            assert getattr(self, change) is None, f"{change} came twice for {self.request_id}"
            setattr(self, change, getattr(event, change))


class GatewayStream:
    """One attached stream; events are collected by a task in the background."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._numbers = itertools.count(1)
        self._legs: dict[str, Leg] = {}
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self.load = worker_pb2.Load()
        self.messages: list[worker_pb2.WorkerMessage] = []
        self._reading = asyncio.create_task(self._read())
        self.ended: grpc.StatusCode | None = None

    async def submit(self, prompt: Sequence[int], output: Sequence[int] = (), **fields: Any) -> Leg:
        """Submit a leg; `fields` are further fields of the message."""
        request_id = fields.pop("request_id", f"r{next(self._numbers)}")
        leg = self._legs[request_id] = Leg(request_id)
        submit = worker_pb2.Submit(request_id=request_id, prompt=prompt, output=output, **fields)
        await self._write(worker_pb2.GatewayMessage(submit=submit))
        return leg

    async def cancel(self, leg: Leg) -> None:
        """Cancel a leg."""
        await self._write(worker_pb2.GatewayMessage(cancel=worker_pb2.Cancel(request_id=leg.request_id)))

    async def until_over(self, *legs: Leg) -> None:
        """Wait until all legs are parked, finished or failed."""
        await self.until(lambda: all(leg.over for leg in legs))

    async def until(self, condition: Any) -> None:
        """Wait until a condition on legs, load or end of the stream holds."""
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(condition)

    async def close(self) -> None:
        """End the stream as a gateway does that goes away."""
        self._call.cancel()
        await self._reading

    async def half_close(self) -> None:
        """End our direction only."""
        await self._call.done_writing()
        await self.until(lambda: self.ended is not None)

    async def _write(self, message: worker_pb2.GatewayMessage) -> None:
        async with self._writing:  # gRPC takes one write at a time
            await self._call.write(message)

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            while isinstance(message := await self._call.read(), worker_pb2.WorkerMessage):
                async with self._changed:
                    self._take(message)
                    self._changed.notify_all()
        code = await self._call.code()
        async with self._changed:
            self.ended = code
            self._changed.notify_all()

    def _take(self, message: worker_pb2.WorkerMessage) -> None:
        self.messages.append(message)
        self.load = message.load
        for event in message.events:
            self._legs[event.request_id].take(event)


class Gateway:
    """Channels and streams of one test; closes what it opened."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._streams: list[GatewayStream] = []

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to an address."""
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
        return self._channels[address]

    def attach(self, address: str) -> GatewayStream:
        """Open a stream."""
        stream = GatewayStream(worker_pb2_grpc.WorkerStub(self.channel(address)).Attach(wait_for_ready=True))
        self._streams.append(stream)
        return stream

    async def describe(self, address: str) -> worker_pb2.Description:
        """What a worker says it is."""
        stub = worker_pb2_grpc.WorkerStub(self.channel(address))
        return await stub.Describe(worker_pb2.DescribeRequest(), timeout=WAIT_SECONDS)

    def kv(self, address: str) -> "kv_pb2_grpc.KvAsyncStub":
        """The service that readers use."""
        return kv_pb2_grpc.KvStub(self.channel(address))

    async def pull(self, handle: kv_pb2.KvHandle, pieces: Sequence[kv_pb2.Piece] | None = None) -> kv_pb2.PullResponse:
        """Ask for tickets as a decode worker does, for all over tcp unless told. Raises grpc.aio.AioRpcError."""
        if pieces is None:
            whole = enumerate(handle.shards)
            pieces = [kv_pb2.Piece(rank=rank, part=part, transport="tcp", reader_rank=rank) for rank, part in whole]
        request = kv_pb2.PullRequest(handle=handle, pieces=pieces, reader="test")
        return await self.kv(handle.address).Pull(request, timeout=WAIT_SECONDS)

    async def close(self) -> None:
        """End everything."""
        for stream in self._streams:
            await stream.close()
        for channel in self._channels.values():
            await channel.close()


@contextlib.asynccontextmanager
async def opened_gateway() -> AsyncIterator[Gateway]:
    """A gateway for one test."""
    gateway = Gateway()
    try:
        yield gateway
    finally:
        await gateway.close()
