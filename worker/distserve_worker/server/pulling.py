"""Takes a parked KV from its prefill worker: lease, agreement, transfer, release."""

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Never

import grpc

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import KvBlocks
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.peers import PeerError, Peers
from distserve_worker.transfer.deadlines import transfer_seconds
from distserve_worker.transfer.interface import Pulling, Source, Transfer, TransferError

log = logging.getLogger(__name__)

MAX_PULLS: Final = 4  # side by side
_BUSY_SECONDS: Final = 10.0  # how long a prefill worker may have too many readers
_BUSY_PAUSE_SECONDS: Final = 0.1
_RELEASE_TRIES: Final = 3
_RELEASE_PAUSE_SECONDS: Final = 0.5


class KvLost(Exception):  # noqa: N818 - named after the failure code
    """The KV of a leg cannot be had."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A complete import."""

    transport: str
    nbytes: int


class Puller:
    """Bounded pulls in threads of their own; used on the event loop only."""

    def __init__(self, transports: Mapping[str, Pulling], reader: str, metrics: Metrics) -> None:
        """Pull by the first of `transports` that the other side has; `reader` is our incarnation."""
        self._transports = transports
        self._reader = reader
        self._metrics = metrics
        self._peers = Peers()
        self._threads = ThreadPoolExecutor(MAX_PULLS, thread_name_prefix="kv-puller")
        self._slots = asyncio.Semaphore(MAX_PULLS)

    async def pull(self, handle: kv_pb2.KvHandle, target: asyncio.Future[KvBlocks]) -> Pulled:
        """Keep the lease alive until `target` is there, then fill it. Raises `KvLost`.

        When it ends, in whatever way, nothing writes to the memory any more.
        """
        renewing = asyncio.create_task(self._renew(handle))
        filling = asyncio.create_task(self._fill(handle, target))
        try:
            await asyncio.wait((renewing, filling), return_when=asyncio.FIRST_COMPLETED)
            if not filling.done():
                await renewing
            return await filling
        finally:
            for task in (renewing, filling):
                task.cancel()
            await asyncio.gather(renewing, filling, return_exceptions=True)

    async def release(self, handle: kv_pb2.KvHandle) -> None:
        """Let the prefill worker free the KV; when it cannot be told, its lease ends by itself."""
        for _ in range(_RELEASE_TRIES):
            try:
                await self._peers.release(handle)
            except PeerError as error:
                log.warning("releasing %s: %s", handle.request_id, error)
                await asyncio.sleep(_RELEASE_PAUSE_SECONDS)
            else:
                return

    async def close(self) -> None:
        """Close the channels; no pull runs any more."""
        await self._peers.close()
        self._threads.shutdown(wait=False)

    async def _renew(self, handle: kv_pb2.KvHandle) -> Never:
        seconds = handle.lease_milliseconds / 1000
        while True:
            await asyncio.sleep(seconds / 3)
            try:
                seconds = await self._peers.renew(handle)
            except PeerError as error:
                raise KvLost(f"the lease could not be renewed: {error}") from error

    async def _fill(self, handle: kv_pb2.KvHandle, target: asyncio.Future[KvBlocks]) -> Pulled:
        memory = await target
        async with self._slots:
            started = time.monotonic()
            response = await self._agree(handle)
            await self._transfer(self._begin(response, memory))
        self._metrics.pull_seconds.observe(time.monotonic() - started)
        self._metrics.pull_bytes.labels(response.transport).inc(memory.nbytes)
        return Pulled(response.transport, memory.nbytes)

    async def _agree(self, handle: kv_pb2.KvHandle) -> kv_pb2.PullResponse:
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return await self._peers.pull(handle, list(self._transports), self._reader)
            except PeerError as error:
                if error.code is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > until:
                    raise KvLost(f"the pull was refused: {error}") from error
            await asyncio.sleep(_BUSY_PAUSE_SECONDS)

    def _begin(self, response: kv_pb2.PullResponse, memory: KvBlocks) -> Transfer:
        pulling = self._transports.get(response.transport)
        if pulling is None:
            raise KvLost(f"the prefill worker chose transport {response.transport!r}, which was not asked for")
        if response.bytes != memory.nbytes:
            raise KvLost(f"the prefill worker offers {response.bytes} bytes, {memory.nbytes} are needed")
        source = Source(response.endpoint, response.ticket)
        return pulling.begin(source, memory, time.monotonic() + transfer_seconds(memory.nbytes))

    async def _transfer(self, transfer: Transfer) -> None:
        running = asyncio.get_running_loop().run_in_executor(self._threads, transfer.run)
        try:
            await asyncio.shield(running)
        except TransferError as error:
            raise KvLost(f"the transfer failed: {error}") from error
        except asyncio.CancelledError:
            transfer.abort()
            await asyncio.wait((running,))
            raise
