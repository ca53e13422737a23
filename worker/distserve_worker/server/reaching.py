"""Finds out, once for each prefill worker, which rank pulls what from which of its ranks and over which transport.

A better way that failed is tried again now and then, while requests take the one that works.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import KvShard
from distserve_worker.server.kv_failures import KvLost, KvUnreachable, of_call, of_transfer
from distserve_worker.server.kv_wire import shards_of
from distserve_worker.server.peers import PeerError, Peers
from distserve_worker.transfer.agent import Agent, Choice, Way
from distserve_worker.transfer.interface import TransferError
from distserve_worker.transfer.resharding import Piece, pieces

log = logging.getLogger(__name__)

_MAX_PEERS: Final = 64
_TRY_SECONDS: Final = 10.0  # for each transport of a pair of ranks; NCCL needs some
_TRIES_AT_ONCE: Final = 8
_AGAIN_SECONDS: Final = 300.0  # from the end of one try of what is better to the next one

_Key = tuple[str, tuple[KvShard, ...]]
_Pair = tuple[int, int]  # the rank that reads, the rank that it reads from


@dataclass(frozen=True, slots=True)
class Hop:
    """A piece, and the transport that it takes."""

    piece: Piece
    transport: str


class _Reached:
    """How one prefill worker is reached; used on the event loop only."""

    def __init__(self, address: str, plan: Sequence[Piece], chosen: Mapping[_Pair, tuple[str, Choice]]) -> None:
        self.address = address
        self._plan = plan
        self._transports = {pair: transport for pair, (transport, _) in chosen.items()}
        self._passed = {pair: choice.passed for pair, (_, choice) in chosen.items()}
        self.again_at = time.monotonic() + _AGAIN_SECONDS
        if self.better:
            log.warning(
                "KV from %s comes over %s, for better ways failed: %s; they are tried again every %.0f s",
                address,
                "+".join(sorted(set(self._transports.values()))),
                _told([choice for _, choice in chosen.values()]),
                _AGAIN_SECONDS,
            )

    @property
    def hops(self) -> tuple[Hop, ...]:
        """All pieces, each over what is known to work."""
        return tuple(Hop(piece, self._transports[piece.reader, piece.source]) for piece in self._plan)

    @property
    def better(self) -> dict[_Pair, tuple[Way, ...]]:
        """What failed and would be better than what is used."""
        return {pair: tuple(one.way for one in passed) for pair, passed in self._passed.items() if passed}

    def take(self, pair: _Pair, choice: Choice) -> None:
        """What came of trying `better` again."""
        self._passed[pair] = choice.passed
        if choice.transport is not None:
            self._transports[pair] = choice.transport
            log.info("rank %d reaches rank %d of %s over %s now", *pair, self.address, choice.transport)


class Reaching:
    """Hops are kept by incarnation, so a worker that was restarted is tried anew; used on the event loop only."""

    def __init__(self, peers: Peers, agents: Sequence[Agent], shards: tuple[KvShard, ...]) -> None:
        """`agents` and `shards`: of our own ranks, in order."""
        self._peers = peers
        self._agents = agents
        self._shards = shards
        self._threads = ThreadPoolExecutor(_TRIES_AT_ONCE, thread_name_prefix="kv-trying")
        # of its own, so that whoever meets a worker for the first time does not wait for what nobody waits for
        self._again = ThreadPoolExecutor(1, thread_name_prefix="kv-trying-again")
        self._found: OrderedDict[_Key, asyncio.Task[_Reached]] = OrderedDict()
        self._improving: set[asyncio.Task[None]] = set()

    async def hops(self, handle: kv_pb2.KvHandle) -> tuple[Hop, ...]:
        """What our ranks pull, and how. Raises `KvFailure`; then the next handle of that worker tries again."""
        key = _key(handle)
        task = self._found.get(key)
        if task is None:
            task = self._found[key] = asyncio.create_task(self._find(handle), name=f"reach {handle.address}")
            task.add_done_callback(lambda done: self._settled(key, done))
        self._found.move_to_end(key)
        reached = await asyncio.shield(task)  # others may wait for it too
        self._improve(reached)
        return reached.hops

    def forget(self, handle: kv_pb2.KvHandle) -> None:
        """A transfer has failed: find out anew what works."""
        task = self._found.get(_key(handle))
        if task is not None and task.done():
            del self._found[_key(handle)]

    async def close(self) -> None:
        """End what still runs."""
        tasks = (*self._found.values(), *self._improving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)
        self._again.shutdown(wait=False, cancel_futures=True)

    def _settled(self, key: _Key, task: asyncio.Task[_Reached]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed and self._found.get(key) is task:
            del self._found[key]
        while len(self._found) > _MAX_PEERS:
            self._found.popitem(last=False)

    async def _find(self, handle: kv_pb2.KvHandle) -> _Reached:
        try:
            ranks = (await self._peers.connect(handle)).ranks
        except PeerError as error:
            raise of_call("asking for the transports failed", error) from error
        if len(ranks) != len(handle.shards):
            raise KvLost(f"{handle.address} has {len(ranks)} ranks, the handle names {len(handle.shards)}")
        ways = [[Way(one.name, one.probe) for one in rank.transports] for rank in ranks]
        plan = pieces(shards_of(handle), self._shards)
        pairs = tuple(dict.fromkeys((piece.reader, piece.source) for piece in plan))
        chosen = await asyncio.gather(*(self._chosen(pair, ways[pair[1]]) for pair in pairs))
        return _Reached(handle.address, plan, dict(zip(pairs, chosen, strict=True)))

    async def _chosen(self, pair: _Pair, ways: Sequence[Way]) -> tuple[str, Choice]:
        reader, source = pair
        try:
            choice = await self._choice(self._threads, reader, ways)
        except TransferError as error:
            raise of_transfer(error) from error
        if choice.transport is None:
            tried = ", ".join(way.transport for way in ways) or "none"
            failed = f"; {_told([choice])}" if choice.passed else ""
            raise KvUnreachable(
                f"rank {reader} reaches rank {source} of the prefill worker by no transport of: {tried}{failed}"
            )
        return choice.transport, choice

    def _improve(self, reached: _Reached) -> None:
        """Try what would be better when it is time to, beside the request that comes by."""
        if not reached.better or time.monotonic() < reached.again_at:
            return
        reached.again_at = math.inf
        task = asyncio.create_task(self._try_again(reached), name=f"reach {reached.address} better")
        self._improving.add(task)
        task.add_done_callback(self._improving.discard)

    async def _try_again(self, reached: _Reached) -> None:
        try:
            for pair, ways in reached.better.items():
                reached.take(pair, await self._choice(self._again, pair[0], ways))
        except TransferError as error:
            log.warning("no better way to %s can be tried: %s", reached.address, error)
        finally:
            reached.again_at = time.monotonic() + _AGAIN_SECONDS

    async def _choice(self, threads: Executor, reader: int, ways: Sequence[Way]) -> Choice:
        """Raises `TransferError`."""
        return await asyncio.get_running_loop().run_in_executor(
            threads, self._agents[reader].choose, ways, _TRY_SECONDS
        )


def _key(handle: kv_pb2.KvHandle) -> _Key:
    return handle.incarnation, shards_of(handle)


def _told(choices: Collection[Choice]) -> str:
    """What failed, each once."""
    return ", ".join(dict.fromkeys(f"{one.way.transport} ({one.reason})" for each in choices for one in each.passed))
