"""The transfers of one pull: all succeed, or all end and the pull fails with the reason of the one that began it."""

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from distserve_worker.engine.interface import KvShard
from distserve_worker.server.transferring import run_all
from distserve_worker.transfer.agent import Share
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.remote.agent import RemoteAgent
from distserve_worker.transfer.remote.messages import Hello, Pull


class Running:
    """A transfer that goes on until it is aborted."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._aborted = threading.Event()
        self.over = False

    def run(self) -> None:
        self.begun.set()
        assert self._aborted.wait(20)
        self.over = True
        raise TransferError(Fault.ABORTED, "ended by this side")

    def abort(self) -> None:
        self._aborted.set()


class Failing(Running):
    """One that fails once others run."""

    def __init__(self, others: list[Running]) -> None:
        super().__init__()
        self._others = others

    def run(self) -> None:
        assert all(other.begun.wait(20) for other in self._others)
        raise TransferError(Fault.REFUSED, "the offer does not stand")


class Done(Running):
    """One that is complete at once."""

    def run(self) -> None:
        self.over = True


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


async def test_a_pull_is_over_when_all_its_transfers_are(threads: ThreadPoolExecutor) -> None:
    transfers = [Done(), Done(), Done()]
    await run_all(transfers, threads)
    assert all(transfer.over for transfer in transfers)


async def test_one_that_fails_ends_the_others_and_gives_its_reason(threads: ThreadPoolExecutor) -> None:
    """B3: nothing writes to any rank's memory any more then."""
    others = [Running(), Running()]
    with pytest.raises(TransferError, match="does not stand"):
        await run_all([others[0], Failing(others), others[1]], threads)
    assert all(other.over for other in others)


async def test_a_cancelled_pull_waits_for_the_end_of_all(threads: ThreadPoolExecutor) -> None:
    """B5."""
    transfers = [Running(), Running()]
    pull = asyncio.create_task(run_all(transfers, threads))
    for transfer in transfers:
        await asyncio.to_thread(transfer.begun.wait, 20)
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull
    assert all(transfer.over for transfer in transfers)


async def test_a_pull_ends_although_a_rank_reads_nothing_any_more(threads: ThreadPoolExecutor) -> None:
    """B3, B5: that rank is cut off, which ends all that it has; telling it to abort never fails."""
    ours, theirs = multiprocessing.Pipe()
    theirs.send(Hello(()))
    agent = RemoteAgent(ours)
    share = Share((0,), KvShard(0, 1, 0, 1))
    transfers = [agent.begin("tcp", Source("", b"", 0), share, 60.0) for _ in range(2)]
    pull = asyncio.create_task(run_all(transfers, threads))
    for _ in transfers:
        assert isinstance(await asyncio.to_thread(theirs.recv), Pull)
    for _ in range(50_000):
        transfers[0].abort()
    with pytest.raises(TransferError, match="gone") as error:
        await pull
    assert error.value.fault is Fault.CLOSED
    agent.withdraw("tcp", b"ticket")
    theirs.close()
