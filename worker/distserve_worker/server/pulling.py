"""Takes a parked KV from its prefill worker: lease, agreement, transfer, release."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import grpc

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import KvBlocks
from distserve_worker.server.kv_failures import KvLost, KvUnreachable, of_call, of_transfer
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.peers import PeerError, Peers
from distserve_worker.server.pull_slots import PullSlots
from distserve_worker.server.renewing import keep_lease
from distserve_worker.transfer.deadlines import transfer_seconds
from distserve_worker.transfer.interface import Pulling, Source, Transfer, TransferError

log = logging.getLogger(__name__)

MAX_PULLS: Final = 8  # side by side
MAX_PULLS_OF_ONE_PEER: Final = 4
_BUSY_TRIES: Final = 100  # while a prefill worker has too many readers: some ten seconds
_BUSY_PAUSE_SECONDS: Final = 0.1
_RELEASE_TRIES: Final = 3
_RELEASE_PAUSE_SECONDS: Final = 0.5


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
        self._slots = PullSlots(MAX_PULLS, MAX_PULLS_OF_ONE_PEER)

    async def pull(self, handle: kv_pb2.KvHandle, target: asyncio.Future[KvBlocks]) -> Pulled:
        """Keep the lease alive until a pull into `target` is agreed on, then fill it. Raises `KvFailure`.

        When it ends, in whatever way, nothing writes to the memory any more.
        """
        renewing = asyncio.create_task(keep_lease(self._peers, handle))
        # Whoever has a ticket needs no lease: from there on a renewal could only do harm.
        filling = asyncio.create_task(self._fill(handle, target, renewing.cancel))
        try:
            await asyncio.wait((renewing, filling), return_when=asyncio.FIRST_COMPLETED)
            if not filling.done() and not renewing.cancelled():
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

    async def _fill(
        self, handle: kv_pb2.KvHandle, target: asyncio.Future[KvBlocks], agreed: Callable[[], object]
    ) -> Pulled:
        memory = await target
        for _ in range(_BUSY_TRIES):
            async with self._slots.hold(handle.address):
                started = time.monotonic()
                response = await self._agree(handle)
                if response is not None:
                    agreed()
                    await self._transfer(self._begin(response, memory))
                    self._metrics.pull_seconds.observe(time.monotonic() - started)
                    self._metrics.pull_bytes.labels(response.transport).inc(memory.nbytes)
                    return Pulled(response.transport, memory.nbytes)
            await asyncio.sleep(_BUSY_PAUSE_SECONDS)
        raise KvUnreachable(f"{handle.address} had too many readers at each of {_BUSY_TRIES} tries")

    async def _agree(self, handle: kv_pb2.KvHandle) -> kv_pb2.PullResponse | None:
        """The prefill worker's offer; None when it has too many readers."""
        try:
            return await self._peers.pull(handle, list(self._transports), self._reader)
        except PeerError as error:
            if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return None
            raise of_call("the pull was refused", error) from error

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
            raise of_transfer(error) from error
        except asyncio.CancelledError:
            transfer.abort()
            await asyncio.wait((running,))
            raise
