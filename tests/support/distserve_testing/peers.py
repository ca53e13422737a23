"""A prefill worker's KV side that does what a test tells it: a real gRPC server and a real data listener."""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc.aio

from distserve_proto import kv_pb2, kv_pb2_grpc, worker_pb2
from distserve_proto.addresses import format_address
from distserve_proto.channels import SERVER_OPTIONS
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.tickets import TICKET_BYTES

WAIT_SECONDS: Final = 60


class ScriptedPeer(kv_pb2_grpc.KvServicer):
    """Answers as its fields say; connections to its data listener are the test's to accept."""

    def __init__(self, description: worker_pb2.Description) -> None:
        """`description` is the decode worker's, so that handles fit it."""
        self._description = description
        self._incarnation = f"scripted-{uuid.uuid4().hex}"  # a worker remembers how it has reached others
        self.listener: socket.socket = listen("127.0.0.1", 0)
        self.address = ""
        self.data_address = format_address("127.0.0.1", self.listener.getsockname()[1])
        self.ways: list[str] = ["tcp"]
        self.nbytes: int | None = None
        self.sources: int | None = None
        self.connects = 0
        self.refusal: grpc.StatusCode | None = None
        self.renew_refusal: grpc.StatusCode | None = None
        self.lease_milliseconds = 30_000
        self.pulls = 0
        self.renewals = 0
        self.released: list[str] = []
        self._called = asyncio.Condition()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what was called holds."""
        async with asyncio.timeout(WAIT_SECONDS), self._called:
            await self._called.wait_for(condition)

    def handle(self, tokens: int, **changes: Any) -> kv_pb2.KvHandle:
        """A handle that the decode worker accepts, but for `changes`."""
        layout = self._description.layout
        blocks = [kv_pb2.BlockRef(index=index) for index in range(-(-tokens // layout.block_tokens))]
        fields: dict[str, Any] = {
            "incarnation": self._incarnation,
            "request_id": "theirs#1",
            "address": self.address,
            "layout": layout,
            "blocks": blocks,
            "tokens": tokens,
            "lease_milliseconds": self.lease_milliseconds,
            "compatibility_key": self._description.compatibility_key,
            "shards": [kv_pb2.KvShard(layers=layout.layers, heads=layout.kv_heads)],
        }
        return kv_pb2.KvHandle(**fields | changes)

    async def Connect(  # noqa: N802
        self,
        request: kv_pb2.ConnectRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> kv_pb2.ConnectResponse:
        """One rank."""
        self.connects += 1
        await self._tell()
        ways = [kv_pb2.Transport(name=name, probe=self.data_address.encode()) for name in self.ways]
        return kv_pb2.ConnectResponse(ranks=[kv_pb2.RankTransports(transports=ways)])

    async def Pull(self, request: kv_pb2.PullRequest, context: Any) -> kv_pb2.PullResponse:  # noqa: N802
        """Offer all that the handle describes as each piece."""
        self.pulls += 1
        await self._tell()
        if self.refusal is not None:
            await context.abort(self.refusal, "told to refuse")
        layout = request.handle.layout
        block_bytes = layout.layers * 2 * layout.kv_heads * layout.block_tokens * layout.head_dim * 4
        source = kv_pb2.Source(
            endpoint=self.data_address,
            ticket=b"t" * TICKET_BYTES,
            bytes=len(request.handle.blocks) * block_bytes if self.nbytes is None else self.nbytes,
        )
        return kv_pb2.PullResponse(sources=[source] * (len(request.pieces) if self.sources is None else self.sources))

    async def Renew(self, request: kv_pb2.RenewRequest, context: Any) -> kv_pb2.RenewResponse:  # noqa: ARG002, N802
        """Prolong."""
        self.renewals += 1
        await self._tell()
        if self.renew_refusal is not None:
            await context.abort(self.renew_refusal, "told to refuse")
        return kv_pb2.RenewResponse(lease_milliseconds=self.lease_milliseconds)

    async def Release(  # noqa: N802
        self,
        request: kv_pb2.ReleaseRequest,
        context: Any,  # noqa: ARG002
    ) -> kv_pb2.ReleaseResponse:
        """Note it."""
        self.released.append(request.request_id)
        await self._tell()
        return kv_pb2.ReleaseResponse()

    async def _tell(self) -> None:
        async with self._called:
            self._called.notify_all()


@contextlib.asynccontextmanager
async def scripted_peer(description: worker_pb2.Description) -> AsyncIterator[ScriptedPeer]:
    """A peer that serves for one test."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    peer = ScriptedPeer(description)
    kv_pb2_grpc.add_KvServicer_to_server(peer, server)
    peer.address = format_address("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    try:
        yield peer
    finally:
        await server.stop(None)
        peer.listener.close()
