"""A rank in a process of its own, whose agent serves and pulls; its memory is random by a seed."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from distserve_testing.forking import CONTEXT
from distserve_testing.regions import random_region
from distserve_worker.engine.interface import KvLayout, KvShard, Region
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.opening import open_agent
from distserve_worker.transfer.remote.agent import RemoteAgent
from distserve_worker.transfer.remote.serving import serve_agent

MAX_TRANSFERS = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """What a rank keeps; the same numbers make the same bytes in any process."""

    layout: KvLayout
    blocks: int
    shard: KvShard
    seed: int
    device: str = "cpu"

    def region(self) -> Region:
        """The bytes."""
        return random_region(self.layout, self.blocks, self.shard, self.seed, self.device)


@dataclass(frozen=True, slots=True)
class RankProcess:
    """The process, and this side's agent of it."""

    process: BaseProcess
    agent: RemoteAgent

    def kill(self) -> None:
        """As the kernel does it."""
        self.process.kill()
        self.process.join()


@contextlib.contextmanager
def rank_process(memory: Memory) -> Iterator[RankProcess]:
    """A rank for the length of a test."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_main, args=(theirs, memory, dict(os.environ)), daemon=True)
    process.start()
    theirs.close()
    rank = RankProcess(process, RemoteAgent(ours))
    try:
        yield rank
    finally:
        rank.agent.close()
        process.join(30)
        if process.is_alive():
            rank.kill()
            raise AssertionError("the rank did not end with its driver")


def _main(connection: Connection, memory: Memory, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # the process that this one forked from may have an older one
    os.environ["NCCL_HOSTID"] = f"rank-{os.getpid()}"  # so that NCCL takes it for another pod
    region = memory.region()

    def serve() -> None:
        serve_agent(connection, open_agent(region, listen("127.0.0.1", 0), "127.0.0.1", MAX_TRANSFERS))

    moving = threading.Thread(
        target=serve, name="kv"
    )  # as a rank does: memory is made in one thread, opened in another
    moving.start()
    moving.join()
