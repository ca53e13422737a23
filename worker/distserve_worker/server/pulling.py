"""Takes a parked KV from its prefill worker: lease, agreement, transfers of all ranks, release."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import BlockRef
from distserve_worker.server.identity import Identity
from distserve_worker.server.kv_failures import KvLost, KvUnreachable, of_call, of_transfer
from distserve_worker.server.kv_wire import shard_message, source_of
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.peers import PeerError, Peers
from distserve_worker.server.pull_slots import PullSlots
from distserve_worker.server.reaching import Hop, Reaching
from distserve_worker.server.renewing import keep_lease
from distserve_worker.server.threads import started_threads
from distserve_worker.server.transferring import run_all
from distserve_worker.transfer.agent import Agent, Share
from distserve_worker.transfer.deadlines import transfer_seconds
from distserve_worker.transfer.interface import Transfer, TransferError

log = logging.getLogger(__name__)

MAX_PULLS: Final = 8  # side by side
MAX_PULLS_OF_ONE_PEER: Final = 4
_MAX_TRANSFERS: Final = 64  # pieces of all pulls side by side
_BUSY_TRIES: Final = 100  # while a prefill worker has too many readers: some ten seconds
_BUSY_PAUSE_SECONDS: Final = 0.1
_RELEASE_TRIES: Final = 3
_RELEASE_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pulled:
    """A complete import."""

    transport: str  # all that were used, joined by "+"
    nbytes: int


class Puller:
    """Bounded pulls in threads of their own; used on the event loop only."""

    def __init__(self, agents: Sequence[Agent], identity: Identity, metrics: Metrics) -> None:
        """`agents`: one a rank, in the order of the identity's shards."""
        self._agents = agents
        self._identity = identity
        self._metrics = metrics
        self._peers = Peers()
        self._reaching = Reaching(self._peers, agents, identity.shards)
        self._threads = started_threads(_MAX_TRANSFERS, "kv-puller")
        self._slots = PullSlots(MAX_PULLS, MAX_PULLS_OF_ONE_PEER)

    async def pull(self, handle: kv_pb2.KvHandle, target: asyncio.Future[tuple[BlockRef, ...]]) -> Pulled:
        """Keep the lease alive until a pull into `target` is agreed on, then fill it on all ranks. Raises `KvFailure`.

        When it ends, in whatever way, nothing writes to the blocks any more.
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
        await self._reaching.close()
        await self._peers.close()
        self._threads.shutdown(wait=False)

    async def _fill(
        self, handle: kv_pb2.KvHandle, target: asyncio.Future[tuple[BlockRef, ...]], agreed: Callable[[], object]
    ) -> Pulled:
        blocks = tuple(block.index for block in await target)
        for _ in range(_BUSY_TRIES):
            async with self._slots.hold(handle.address):
                started = time.monotonic()
                hops = await self._reaching.hops(handle)
                sources = await self._agree(handle, hops)
                if sources is not None:
                    agreed()
                    await self._transfer(handle, self._begun(hops, sources, blocks))
                    self._metrics.pull_seconds.observe(time.monotonic() - started)
                    return self._pulled(hops, sources)
            await asyncio.sleep(_BUSY_PAUSE_SECONDS)
        raise KvUnreachable(f"{handle.address} had too many readers at each of {_BUSY_TRIES} tries")

    async def _agree(self, handle: kv_pb2.KvHandle, hops: Sequence[Hop]) -> Sequence[kv_pb2.Source] | None:
        """The prefill worker's offer of each piece; None when it has too many readers."""
        try:
            response = await self._peers.pull(handle, [_message(hop) for hop in hops], self._identity.incarnation)
        except PeerError as error:
            if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return None
            raise of_call("the pull was refused", error) from error
        if len(response.sources) != len(hops):
            raise KvLost(f"{len(hops)} pieces were asked for, the prefill worker offers {len(response.sources)}")
        return response.sources

    def _begun(self, hops: Sequence[Hop], sources: Sequence[kv_pb2.Source], blocks: tuple[int, ...]) -> list[Transfer]:
        seconds = transfer_seconds(sum(source.bytes for source in sources))
        try:
            return [
                self._agents[hop.piece.reader].begin(
                    hop.transport, source_of(source), Share(blocks, hop.piece.part), seconds
                )
                for hop, source in zip(hops, sources, strict=True)
            ]
        except TransferError as error:
            raise of_transfer(error) from error

    async def _transfer(self, handle: kv_pb2.KvHandle, transfers: Sequence[Transfer]) -> None:
        try:
            await run_all(transfers, self._threads)
        except TransferError as error:
            self._reaching.forget(handle)
            raise of_transfer(error) from error

    def _pulled(self, hops: Sequence[Hop], sources: Sequence[kv_pb2.Source]) -> Pulled:
        for hop, source in zip(hops, sources, strict=True):
            self._metrics.pull_bytes.labels(hop.transport).inc(source.bytes)
        names = sorted({hop.transport for hop in hops})
        return Pulled("+".join(names), sum(source.bytes for source in sources))


def _message(hop: Hop) -> kv_pb2.Piece:
    piece = hop.piece
    return kv_pb2.Piece(
        rank=piece.source, part=shard_message(piece.part), transport=hop.transport, reader_rank=piece.reader
    )
