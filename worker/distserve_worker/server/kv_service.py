"""gRPC service `Kv` of a prefill worker."""

from typing import Any, Final, Never

import grpc.aio

from distserve_proto import kv_pb2, kv_pb2_grpc
from distserve_worker.server.lending import KvRefused, Lending

_Context = grpc.aio.ServicerContext[Any, Any]

_MAX_DETAILS: Final = 1000  # characters; they travel in a header of limited size


class KvService(kv_pb2_grpc.KvServicer):
    """Translates between gRPC and `Lending`."""

    def __init__(self, lending: Lending) -> None:
        self._lending = lending

    async def Connect(  # noqa: N802 - named by the wire
        self, request: kv_pb2.ConnectRequest, context: _Context
    ) -> kv_pb2.ConnectResponse:
        """Tell how each rank is reached."""
        try:
            return self._lending.connect(request.incarnation)
        except KvRefused as refusal:
            return await _abort(context, refusal)

    async def Pull(  # noqa: N802
        self, request: kv_pb2.PullRequest, context: _Context
    ) -> kv_pb2.PullResponse:
        """Offer pieces of a parked KV to their reader."""
        try:
            return await self._lending.pull(request)
        except KvRefused as refusal:
            return await _abort(context, refusal)

    async def Renew(  # noqa: N802
        self, request: kv_pb2.RenewRequest, context: _Context
    ) -> kv_pb2.RenewResponse:
        """Prolong a lease."""
        try:
            seconds = self._lending.renew(request.incarnation, request.request_id)
        except KvRefused as refusal:
            return await _abort(context, refusal)
        return kv_pb2.RenewResponse(lease_milliseconds=round(seconds * 1000))

    async def Release(  # noqa: N802
        self,
        request: kv_pb2.ReleaseRequest,
        context: _Context,  # noqa: ARG002
    ) -> kv_pb2.ReleaseResponse:
        """Free a parked KV."""
        self._lending.release(request.incarnation, request.request_id)
        return kv_pb2.ReleaseResponse()


async def _abort(context: _Context, refusal: KvRefused) -> Never:
    await context.abort(refusal.code, str(refusal)[:_MAX_DETAILS])
    raise AssertionError("abort raises")
