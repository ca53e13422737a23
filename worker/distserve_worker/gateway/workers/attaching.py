"""Keeps one stream with one worker: attaches, reads, writes, and attaches again for as long as the worker is known."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from distserve_proto.channels import CLIENT_OPTIONS
from distserve_proto.worker_pb2 import DescribeRequest, GatewayMessage, WorkerMessage
from distserve_proto.worker_pb2_grpc import WorkerStub
from distserve_worker.gateway.workers.session import Session

log = logging.getLogger(__name__)

DESCRIBE_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0

Stream = aio.StreamStreamCall[GatewayMessage, WorkerMessage]


@dataclass(frozen=True, slots=True)
class Target:
    """Where discovery says a worker is; another boot of a pod under the same name is another target."""

    instance: str
    address: str
    uid: str | None = None  # of the pod


class StreamEndedError(Exception):
    """The stream cannot be used, or not any more."""


class WorkerConnection:
    """The stream with one worker, over all its reconnections."""

    def __init__(self, target: Target, model: str, changed: Callable[[], None]) -> None:
        self.target = target
        self._model = model
        self.session: Session | None = None
        self.last_turn = 0
        self._changed = changed
        self._incarnation: str | None = None
        self._retired = False
        self._wake = asyncio.Event()

    def retire(self) -> None:
        """No new work and no reconnection; the stream stays until the requests on it have ended."""
        self._retired = True
        self._wake.set()

    def restore(self) -> None:
        """The worker is wanted again."""
        self._retired = False

    @property
    def retired(self) -> bool:
        """Whether discovery has dropped the worker."""
        return self._retired

    async def run(self) -> None:
        """Stay attached until retired and idle."""
        pause = FIRST_PAUSE_SECONDS
        while not self._retired:
            try:
                attached = await self._attach_once()
            except Exception:  # a fault in one stream must not end the connection for ever
                log.exception("the stream to %s failed", self.target.instance)
                attached = False
            pause = FIRST_PAUSE_SECONDS if attached else min(2 * pause, LONGEST_PAUSE_SECONDS)
            await self._rest(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads reconnections

    async def _attach_once(self) -> bool:
        """Serve one stream to its end; false when it never came up."""
        reason = "the gateway closed the stream"
        try:
            async with aio.insecure_channel(self.target.address, options=CLIENT_OPTIONS) as channel:
                await self._serve(channel)
        except (grpc.RpcError, aio.BaseError, StreamEndedError, asyncio.InvalidStateError, TimeoutError) as error:
            reason = _brief(error)
        finally:
            session, self.session = self.session, None
            if session is not None:
                session.close(f"the stream to {self.target.instance} ended: {reason}")
                self._changed()
        self._report(reason, attached=session is not None)
        return session is not None

    async def _serve(self, channel: aio.Channel) -> None:
        stub = WorkerStub(channel)
        # The stream first: a worker that restarts between the two calls ends it, so the description is of this boot.
        stream = stub.Attach()
        try:
            async with asyncio.timeout(DESCRIBE_SECONDS):
                description = await stub.Describe(DescribeRequest())
            if description.model != self._model:
                raise StreamEndedError(f"it serves model {description.model!r}, not {self._model!r}")
            self._greet(description.incarnation)
            session = self.session = Session(self.target.instance, description)
            self._changed()
            parts = self._read(stream, session), self._write(stream, session)
            await _first_to_end(*parts, self._until_retired(session), _until_ended(session))
        finally:
            stream.cancel()

    async def _read(self, stream: Stream, session: Session) -> None:
        async for message in stream:
            draining = session.load.draining
            session.receive(message)
            if session.load.draining != draining:
                self._changed()
            if session.idle:
                self._wake.set()
        raise StreamEndedError("closed by the worker")

    async def _write(self, stream: Stream, session: Session) -> None:
        while True:
            await stream.write(await session.outbox.get())

    async def _until_retired(self, session: Session) -> None:
        """Ends when the stream is not wanted any more; a retired worker may still finish what it has.

        Retiring and the end of a request wake it; requests that are ended from here do not, hence the longest pause.
        """
        while not (self._retired and session.idle):
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_PAUSE_SECONDS):
                    await self._wake.wait()

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._retired:
                    self._wake.clear()
                    await self._wake.wait()

    def _greet(self, incarnation: str) -> None:
        if self._incarnation not in (None, incarnation):
            log.warning("worker %s restarted; what it held for requests is gone", self.target.instance)
        self._incarnation = incarnation
        log.info("attached to %s at %s", self.target.instance, self.target.address)

    def _report(self, reason: str, *, attached: bool) -> None:
        level = logging.WARNING if attached and not self._retired else logging.DEBUG
        log.log(level, "not attached to %s at %s: %s", self.target.instance, self.target.address, reason)


async def _until_ended(session: Session) -> None:
    await session.ended.wait()
    raise StreamEndedError("given up")


def _brief(error: BaseException) -> str:
    if isinstance(error, aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


async def _first_to_end(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until the first ends, then end the others; raises what the first raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
