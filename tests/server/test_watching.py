"""The rank that went first is found in a bounded time, whatever the others do meanwhile. Elsewhere: real ranks."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Final

import pytest

from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.ranks import watching
from distserve_worker.server.ranks.messages import Progress
from distserve_worker.server.ranks.process import WITHOUT_PEER
from distserve_worker.server.ranks.watching import Listener, RankWatch, WatchedRank

WAIT_SECONDS: Final = 20.0


class PlayedRank:
    """Both ends of what a driver has of a rank: the pipe that it talks over, and the descriptor of its process."""

    def __init__(self, rank: int, stack: ExitStack) -> None:
        ours, self.control = multiprocessing.Pipe()
        for end in (ours, self.control):
            stack.enter_context(end)
        sentinel, alive = os.pipe()
        stack.callback(os.close, sentinel)
        self._life = stack.enter_context(ExitStack())
        self._life.callback(os.close, alive)
        process: Any = SimpleNamespace(sentinel=sentinel, exitcode=None)
        self._process = process
        self.watched = WatchedRank(rank, f"rank {rank}", ours, process)

    def go(self, exitcode: int) -> None:
        """The process ends."""
        self._process.exitcode = exitcode
        self._life.close()


@pytest.fixture
def ranks() -> Iterator[list[PlayedRank]]:
    with ExitStack() as stack:
        yield [PlayedRank(rank, stack) for rank in (1, 2)]


def test_a_rank_that_goes_on_talking_does_not_put_off_the_end(
    ranks: list[PlayedRank], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_CAUSE_SECONDS", 0.05)
    gone, talking = ranks
    told: queue.Queue[WorkerFailure] = queue.Queue()

    def say_more(*_: object) -> None:
        talking.control.send(Progress(0.5))

    RankWatch([one.watched for one in ranks], Listener(say_more, told.put))
    say_more()
    gone.go(WITHOUT_PEER)
    assert str(told.get(timeout=WAIT_SECONDS)) == f"EngineFailed: rank 1 ended with status {WITHOUT_PEER}"


def test_who_asks_why_a_step_broke_off_waits_for_as_long_as_the_cause_may_take(
    ranks: list[PlayedRank], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step's own error says no more than that somebody has gone."""
    monkeypatch.setattr(watching, "_CAUSE_SECONDS", 0.05)
    monkeypatch.setattr(watching, "_NOTICED_SECONDS", WAIT_SECONDS)
    watch = RankWatch([one.watched for one in ranks], Listener(lambda *_: None, lambda _: None))
    end = threading.Timer(0.2, ranks[0].go, [WITHOUT_PEER])
    end.start()
    failure = watch.failure()
    end.join()
    assert str(failure) == f"EngineFailed: rank 1 ended with status {WITHOUT_PEER}"


def test_the_rank_that_took_the_others_along_is_named(ranks: list[PlayedRank], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_CAUSE_SECONDS", WAIT_SECONDS)
    told: queue.Queue[WorkerFailure] = queue.Queue()
    RankWatch([one.watched for one in ranks], Listener(lambda *_: None, told.put))
    ranks[0].go(WITHOUT_PEER)
    ranks[1].go(-signal.SIGKILL)
    assert str(told.get(timeout=WAIT_SECONDS)) == "EngineFailed: rank 2 ended by SIGKILL"
