"""Calls to prefill workers, over one kept channel for each address."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import grpc
import grpc.aio

from distserve_proto import kv_pb2, kv_pb2_grpc
from distserve_proto.channels import CLIENT_OPTIONS

_MAX_CHANNELS: Final = 64
_CALL_SECONDS: Final = 5.0  # answered on the peer's event loop, which never waits for its engine
_CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")
_KvCall = Callable[["kv_pb2_grpc.KvAsyncStub"], Awaitable[T]]


class PeerError(Exception):
    """A prefill worker refused, or could not be reached."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Peers:
    """Channels are dropped when they fail: a worker that was restarted at the same address is met by a fresh one."""

    def __init__(self) -> None:
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def connect(self, handle: kv_pb2.KvHandle) -> kv_pb2.ConnectResponse:
        """Ask how the ranks of a handle's worker are reached. Raises `PeerError`."""
        request = kv_pb2.ConnectRequest(incarnation=handle.incarnation)
        return await self._call(handle.address, lambda stub: stub.Connect(request, timeout=_CALL_SECONDS))

    async def pull(self, handle: kv_pb2.KvHandle, pieces: Sequence[kv_pb2.Piece], reader: str) -> kv_pb2.PullResponse:
        """Ask for pieces of a parked KV. Raises `PeerError`."""
        request = kv_pb2.PullRequest(handle=handle, reader=reader, pieces=pieces)
        return await self._call(handle.address, lambda stub: stub.Pull(request, timeout=_CALL_SECONDS))

    async def renew(self, handle: kv_pb2.KvHandle) -> float:
        """Prolong a lease; seconds until it ends now. Raises `PeerError`."""
        request = kv_pb2.RenewRequest(incarnation=handle.incarnation, request_id=handle.request_id)
        response = await self._call(handle.address, lambda stub: stub.Renew(request, timeout=_CALL_SECONDS))
        return response.lease_milliseconds / 1000

    async def release(self, handle: kv_pb2.KvHandle) -> None:
        """Let the prefill worker free a KV. Raises `PeerError`."""
        request = kv_pb2.ReleaseRequest(incarnation=handle.incarnation, request_id=handle.request_id)
        await self._call(handle.address, lambda stub: stub.Release(request, timeout=_CALL_SECONDS))

    async def close(self) -> None:
        """Close every channel."""
        for address in tuple(self._channels):
            self._discard(address, self._channels[address])
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _call(self, address: str, call: _KvCall[T]) -> T:
        """One call; when the channel turns out to be dead, once more on a fresh one."""
        try:
            return await self._try(address, call)
        except PeerError as error:
            if error.code is not grpc.StatusCode.UNAVAILABLE:
                raise
        return await self._try(address, call)

    async def _try(self, address: str, call: _KvCall[T]) -> T:
        channel = self._channel(address)
        try:
            return await call(kv_pb2_grpc.KvStub(channel))
        except grpc.aio.AioRpcError as error:
            if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
                self._discard(address, channel)
            raise PeerError(error.code(), f"{address}: {error.code().name}: {error.details()}") from error

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
        self._channels.move_to_end(address)
        if len(self._channels) > _MAX_CHANNELS:
            oldest = next(iter(self._channels))
            self._discard(oldest, self._channels[oldest])
        return self._channels[address]

    def _discard(self, address: str, channel: grpc.aio.Channel) -> None:
        if self._channels.get(address) is channel:
            del self._channels[address]
            task = asyncio.create_task(channel.close(grace=_CLOSE_SECONDS))  # calls of others may still succeed
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
