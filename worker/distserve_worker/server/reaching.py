"""Finds out, once for each prefill worker, which rank pulls what from which of its ranks and over which transport."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import KvShard
from distserve_worker.server.kv_failures import KvLost, KvUnreachable, of_call, of_transfer
from distserve_worker.server.kv_wire import shards_of
from distserve_worker.server.peers import PeerError, Peers
from distserve_worker.transfer.agent import Agent, Way
from distserve_worker.transfer.interface import TransferError
from distserve_worker.transfer.resharding import Piece, pieces

_MAX_PEERS: Final = 64
_TRY_SECONDS: Final = 10.0  # for each transport of a pair of ranks; NCCL needs some
_TRIES_AT_ONCE: Final = 8

_Key = tuple[str, tuple[KvShard, ...]]


@dataclass(frozen=True, slots=True)
class Hop:
    """A piece, and the transport that it takes."""

    piece: Piece
    transport: str


class Reaching:
    """Hops are kept by incarnation, so a worker that was restarted is tried anew; used on the event loop only."""

    def __init__(self, peers: Peers, agents: Sequence[Agent], shards: tuple[KvShard, ...]) -> None:
        """`agents` and `shards`: of our own ranks, in order."""
        self._peers = peers
        self._agents = agents
        self._shards = shards
        self._threads = ThreadPoolExecutor(_TRIES_AT_ONCE, thread_name_prefix="kv-trying")
        self._found: OrderedDict[_Key, asyncio.Task[tuple[Hop, ...]]] = OrderedDict()

    async def hops(self, handle: kv_pb2.KvHandle) -> tuple[Hop, ...]:
        """What our ranks pull, and how. Raises `KvFailure`; then the next handle of that worker tries again."""
        key = _key(handle)
        task = self._found.get(key)
        if task is None:
            task = self._found[key] = asyncio.create_task(self._find(handle), name=f"reach {handle.address}")
            task.add_done_callback(lambda done: self._settled(key, done))
        self._found.move_to_end(key)
        return await asyncio.shield(task)  # others may wait for it too

    def forget(self, handle: kv_pb2.KvHandle) -> None:
        """A transfer has failed: find out anew what works."""
        task = self._found.get(_key(handle))
        if task is not None and task.done():
            del self._found[_key(handle)]

    async def close(self) -> None:
        """End what still runs."""
        tasks = tuple(self._found.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)

    def _settled(self, key: _Key, task: asyncio.Task[tuple[Hop, ...]]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed and self._found.get(key) is task:
            del self._found[key]
        while len(self._found) > _MAX_PEERS:
            self._found.popitem(last=False)

    async def _find(self, handle: kv_pb2.KvHandle) -> tuple[Hop, ...]:
        try:
            ranks = (await self._peers.connect(handle)).ranks
        except PeerError as error:
            raise of_call("asking for the transports failed", error) from error
        if len(ranks) != len(handle.shards):
            raise KvLost(f"{handle.address} has {len(ranks)} ranks, the handle names {len(handle.shards)}")
        ways = [[Way(one.name, one.probe) for one in rank.transports] for rank in ranks]
        plan = pieces(shards_of(handle), self._shards)
        pairs = dict.fromkeys((piece.reader, piece.source) for piece in plan)
        chosen = await asyncio.gather(*(self._chosen(reader, source, ways[source]) for reader, source in pairs))
        of_pair = dict(zip(pairs, chosen, strict=True))
        return tuple(Hop(piece, of_pair[piece.reader, piece.source]) for piece in plan)

    async def _chosen(self, reader: int, source: int, ways: Sequence[Way]) -> str:
        loop = asyncio.get_running_loop()
        try:
            name = await loop.run_in_executor(self._threads, self._agents[reader].choose, ways, _TRY_SECONDS)
        except TransferError as error:
            raise of_transfer(error) from error
        if name is None:
            tried = ", ".join(way.transport for way in ways) or "none"
            raise KvUnreachable(
                f"rank {reader} reaches rank {source} of the prefill worker by no transport of: {tried}"
            )
        return name


def _key(handle: kv_pb2.KvHandle) -> _Key:
    return handle.incarnation, shards_of(handle)
