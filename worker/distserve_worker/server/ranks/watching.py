"""Hears what ranks in other processes say, and notices when one of them ends."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.ranks.messages import Fault, Loaded, Met, Progress
from distserve_worker.server.ranks.process import WITHOUT_PEER

_SILENT_SECONDS: Final = 600.0  # of ranks that are waited for, after which they count as hung
_CAUSE_SECONDS: Final = 2.0  # in which the rank that went first is found among those that went with it
_NOTICED_SECONDS: Final = 1.0  # in which the end of a rank is seen at all


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears of the ranks; called from the thread that watches them."""

    progress: Callable[[int, float], None]  # a rank, and the share of its weights that is loaded
    failed: Callable[[WorkerFailure], None]  # a rank has ended, so the instance cannot go on


@dataclass(frozen=True, slots=True)
class WatchedRank:
    """A rank's process, and the pipe that it says on how it fares."""

    rank: int
    name: str
    control: Connection
    process: BaseProcess

    @property
    def is_cause(self) -> bool:
        """Whether it has ended, and not just because another one went."""
        return self.process.exitcode not in (None, WITHOUT_PEER)


class RankWatch:
    """One thread that alone reads what ranks say, from their start to the end of the first of them."""

    def __init__(self, ranks: Sequence[WatchedRank], listener: Listener) -> None:
        """Watch from now on."""
        self._ranks = ranks
        self._listener = listener
        self._news = threading.Condition()  # of what follows
        self._said: dict[type[Loaded | Met], set[int]] = {Loaded: set(), Met: set()}
        self._heard = time.monotonic()
        self._failure: WorkerFailure | None = None
        self._hushed = False
        self._faults: dict[int, Fault] = {}  # what ranks said last; the thread's own
        self._thread = threading.Thread(target=self._run, name="rank-watch", daemon=True)
        self._thread.start()

    def wait_for(self, kind: type[Loaded | Met]) -> None:
        """Until all have said it; while they say anything, it may take as long as it takes.

        Raises `WorkerFailure`: why a rank has ended, or which of them are silent.
        """
        asked = time.monotonic()
        with self._news:
            while self._failure is None and len(self._said[kind]) < len(self._ranks):
                left = max(asked, self._heard) + _SILENT_SECONDS - time.monotonic()
                if left <= 0:
                    names = ", ".join(one.name for one in self._ranks if one.rank not in self._said[kind])
                    text = f"nothing heard for {_SILENT_SECONDS:g} s from {names}"
                    raise WorkerFailure(ExitReason.ENGINE_FAILED, text)
                self._news.wait(left)
            if self._failure is not None:
                raise self._failure

    def failure(self) -> WorkerFailure | None:
        """Why a rank has ended: it may be noticed a moment later, and which of them is to blame another one later."""
        with self._news:
            self._news.wait_for(lambda: self._failure is not None, _NOTICED_SECONDS + _CAUSE_SECONDS)
            return self._failure

    def hush(self) -> None:
        """Tell nobody of the ends that come now."""
        with self._news:
            self._hushed = True

    def join(self, seconds: float) -> None:
        """Wait for the thread, which ends with the first rank."""
        self._thread.join(seconds)

    def _run(self) -> None:
        failure = self._failure_of(self._first_to_go())
        with self._news:
            if self._hushed:
                return
            self._failure = failure
            self._news.notify_all()
        self._listener.failed(failure)

    def _first_to_go(self) -> WatchedRank:
        """Hear them until one has ended. Those that went with it may be seen before the one that took them along.

        That one is waited for until a deadline, however much the others have to say meanwhile.
        """
        talking = {one.control: one for one in self._ranks}
        running = {one.process.sentinel: one for one in self._ranks}
        gone: list[WatchedRank] = []
        deadline: float | None = None
        while not any(one.is_cause for one in gone):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            ready = wait([*talking, *running], left)
            for one in [talking[control] for control in ready if isinstance(control, Connection)]:
                if not self._hear(one):
                    del talking[one.control]
            gone += [running.pop(sentinel) for sentinel in ready if isinstance(sentinel, int)]
            if gone and deadline is None:
                deadline = time.monotonic() + _CAUSE_SECONDS
        return next((one for one in gone if one.is_cause), gone[0])

    def _hear(self, one: WatchedRank) -> bool:
        """One message; False when there are no more."""
        try:
            message = one.control.recv()
        except (EOFError, OSError):
            return False
        match message:
            case Progress(share):
                self._listener.progress(one.rank, share)
            case Fault():
                self._faults[one.rank] = message
        with self._news:
            self._heard = time.monotonic()
            if isinstance(message, Loaded | Met):
                self._said[type(message)].add(one.rank)
            self._news.notify_all()
        return True

    def _failure_of(self, one: WatchedRank) -> WorkerFailure:
        """What it said last, or how its process ended."""
        while one.control.poll() and self._hear(one):
            pass
        fault = self._faults.get(one.rank)
        if fault is not None:
            return WorkerFailure(fault.reason, f"{one.name}: {fault.text}")
        return WorkerFailure(ExitReason.ENGINE_FAILED, f"{one.name} ended {_how(one.process.exitcode)}")


def _how(exitcode: int | None) -> str:
    assert exitcode is not None, "its end has been seen"
    return f"by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"with status {exitcode}"
