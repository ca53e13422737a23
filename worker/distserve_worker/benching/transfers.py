"""Times pulls between two processes against copies in one: `python -m distserve_worker.benching.transfers`.

Pulls and copies take turns over blocks that were touched long before, so neither finds them in a cache. Prints JSON.
"""

import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

from distserve_worker.engine.interface import KvLayout, KvShard, Region
from distserve_worker.engine.shared_memory import shared_bytes
from distserve_worker.transfer.agent import Share
from distserve_worker.transfer.interface import Source
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.opening import open_agent, open_pulling_agent
from distserve_worker.transfer.remote.agent import RemoteAgent
from distserve_worker.transfer.remote.serving import serve_agent

_LAYOUT: Final = KvLayout(layers=16, kv_heads=8, head_dim=64, block_tokens=16, dtype="BF16")  # blocks of 512 KiB
_WHOLE: Final = KvShard(0, _LAYOUT.layers, 0, _LAYOUT.kv_heads)
_BLOCKS: Final = 256
_PULLS: Final = 64  # of each size and transport
_AT_ONCE: Final = 8  # offers that are made before the first of them is timed
_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of each pull and of the copy after it."""

    transport: str
    nbytes: int
    pulls: list[float]
    copies: list[float]

    def summary(self) -> dict[str, object]:
        """The samples, speeds, and what share of a copy's speed a pull has.

        Speeds are those of the lower quartile of times: what else runs on the machine makes some slower, none faster.
        """
        pull, copy = (statistics.quantiles(times, n=4)[0] for times in (self.pulls, self.copies))
        speeds = {"pullBytesPerSecond": self.nbytes / pull, "copyBytesPerSecond": self.nbytes / copy}
        return asdict(self) | speeds | {"ratio": copy / pull}


@dataclass(frozen=True, slots=True)
class _Offer:
    """What can be pulled once; `ended` when the other side knows that it is over."""

    share: Share
    source: Source
    ended: threading.Event


class _Bench:
    """The reader, and two regions of its own for comparison."""

    def __init__(self, serving: RemoteAgent) -> None:
        self._serving = serving
        self._region = _filled()
        self._agent = open_pulling_agent(self._region)
        self._from, self._to = (_filled().memory.numpy() for _ in range(2))
        self._next = 0

    def sample(self, transport: str, blocks: int) -> Sample:
        """Pulls and copies of so many blocks. Raises RuntimeError when the transport does not work here."""
        ways = [way for way in self._serving.ways if way.transport == transport]
        if self._agent.choose(ways, _SECONDS).transport is None:
            raise RuntimeError(f"{transport} does not work between two processes of this machine")
        pulls, copies = [], []
        for _ in range(_PULLS // _AT_ONCE):
            offers = [self._offer(transport, blocks) for _ in range(_AT_ONCE)]
            for offer in offers:
                pulls.append(self._timed_pull(transport, offer))
                copies.append(self._timed_copy(offer.share))
            for offer in offers:
                self._end(transport, offer)
        return Sample(transport, blocks * _LAYOUT.block_bytes, pulls, copies)

    def close(self) -> None:
        """End the reader."""
        self._agent.close()

    def touch_all(self) -> None:
        """Map every page once: a worker does so with its first requests."""
        whole = Share(tuple(range(_BLOCKS)), _WHOLE)
        for way in self._serving.ways:
            assert self._agent.choose([way], _SECONDS).transport is not None, way
            offer = self._offered(way.transport, whole)
            self._timed_pull(way.transport, offer)
            self._end(way.transport, offer)

    def _offer(self, transport: str, blocks: int) -> _Offer:
        start = self._next
        self._next += blocks
        share = Share(tuple((start + place) % _BLOCKS for place in range(blocks)), _WHOLE)
        return self._offered(transport, share)

    def _offered(self, transport: str, share: Share) -> _Offer:
        ended = threading.Event()
        return _Offer(share, self._serving.offer(transport, share, _SECONDS, lambda _: ended.set()), ended)

    def _end(self, transport: str, offer: _Offer) -> None:
        """After the last timing, and to its end: threads of this process would disturb the next one."""
        self._serving.withdraw(transport, offer.source.ticket)
        assert offer.ended.wait(_SECONDS), f"an offer over {transport} did not end"

    def _timed_pull(self, transport: str, offer: _Offer) -> float:
        started = time.perf_counter()
        self._agent.begin(transport, offer.source, offer.share, _SECONDS).run()
        return time.perf_counter() - started

    def _timed_copy(self, share: Share) -> float:
        started = time.perf_counter()
        for block in share.blocks:
            np.copyto(self._to[block], self._from[block])
        return time.perf_counter() - started


def measure(mebibytes: tuple[int, ...] = (1, 4, 16, 64)) -> list[Sample]:
    """Pulls of each size over shm and over tcp on loopback."""
    with _serving() as agent:
        bench = _Bench(agent)
        bench.touch_all()
        samples = [
            bench.sample(transport, (size << 20) // _LAYOUT.block_bytes)
            for transport in ("shm", "tcp")
            for size in mebibytes
        ]
        bench.close()
    return samples


@contextmanager
def _serving() -> Iterator[RemoteAgent]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    agent = RemoteAgent(ours)
    try:
        yield agent
    finally:
        agent.close()
        process.join(_SECONDS)


def _serve(connection: Connection) -> None:
    serve_agent(connection, open_agent(_filled(), listen("127.0.0.1", 0), "127.0.0.1"))


def _filled() -> Region:
    memory, file = shared_bytes(_BLOCKS * _LAYOUT.block_bytes)
    memory.random_(0, 256)
    return Region(_WHOLE, _LAYOUT, memory.view(_BLOCKS, -1), file)


def main() -> int:
    """Print the samples."""
    json.dump([sample.summary() for sample in measure()], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
