"""gRPC service `Worker`: the streams of gateways."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

import grpc
import grpc.aio

from distserve_proto import worker_pb2, worker_pb2_grpc
from distserve_worker.server.dispatching import Dispatcher
from distserve_worker.server.outbox import Outbox
from distserve_worker.server.streams import TooManyStreams

_Context = grpc.aio.ServicerContext[worker_pb2.GatewayMessage, worker_pb2.WorkerMessage]

log = logging.getLogger(__name__)

_ABORT_SECONDS: Final = 1.0  # the status itself waits behind what a slow reader has not read


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """Translates between gRPC and `Dispatcher`."""

    def __init__(self, dispatcher: Dispatcher, description: worker_pb2.Description) -> None:
        """Answer `Describe` with `description` and the load of the moment."""
        self._dispatcher = dispatcher
        self._description = description

    async def Describe(  # noqa: N802 - named by the wire
        self,
        request: worker_pb2.DescribeRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[worker_pb2.DescribeRequest, worker_pb2.Description],  # noqa: ARG002
    ) -> worker_pb2.Description:
        """What the worker is."""
        answer = worker_pb2.Description()
        answer.CopyFrom(self._description)
        answer.load.CopyFrom(self._dispatcher.load)
        return answer

    async def Attach(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: AsyncIterator[worker_pb2.GatewayMessage],
        context: _Context,
    ) -> None:
        """Serve one gateway until either side ends the stream; its legs end with it."""
        try:
            outbox = self._dispatcher.attach()
        except TooManyStreams as refusal:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(refusal))
        peer = context.peer()
        log.info("stream of %s begins", peer)
        try:
            await self._serve(request_iterator, context, outbox)
        finally:
            self._dispatcher.detach(outbox)
            log.info("stream of %s ends", peer)
        if outbox.overflowed.is_set():
            log.warning("%s does not read what it is sent", peer)
            await _abort_slow_reader(context)

    async def _serve(
        self,
        messages: AsyncIterator[worker_pb2.GatewayMessage],
        context: _Context,
        outbox: Outbox,
    ) -> None:
        """Until the gateway ends the stream, the outbox is closed or it overflows.

        gRPC loses the status of a stream whose first write is cancelled: it takes the headers for unsent, and sends
        them twice. So they go first, by themselves.
        """
        await context.send_initial_metadata(())
        tasks = (
            asyncio.create_task(self._read(messages, outbox)),
            asyncio.create_task(_write(context, outbox)),
            asyncio.create_task(outbox.overflowed.wait()),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _read(self, messages: AsyncIterator[worker_pb2.GatewayMessage], outbox: Outbox) -> None:
        async for message in messages:
            match message.WhichOneof("body"):
                case "submit":
                    self._dispatcher.submit(outbox, message.submit)
                case "cancel":
                    self._dispatcher.cancel(outbox, message.cancel.request_id)


async def _write(context: _Context, outbox: Outbox) -> None:
    while (message := await outbox.next()) is not None:
        await context.write(message)


async def _abort_slow_reader(context: _Context) -> None:
    text = "the gateway does not read fast enough: its requests are dropped"
    try:
        await asyncio.wait_for(context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text), _ABORT_SECONDS)
    except TimeoutError:
        log.info("the status stays in the buffers of the connection")
