"""Starts the other ranks of an instance, and notices when one of them ends."""

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Final

from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.ranks import process
from distserve_worker.server.ranks.messages import Assignment, Fault, Loaded, Meet, Met, Progress

log = logging.getLogger(__name__)

_SLOW: Final = "distserve_worker.engine.building"
_SILENT_SECONDS: Final = 600.0  # of a rank that should load or meet, after which it counts as hung
_END_SECONDS: Final = 5.0
_CAUSE_SECONDS: Final = 2.0  # in which the rank that went first is found among those that went with it


class _RankProcess:
    """One rank, and this side's ends of the three ways to it."""

    def __init__(self, assignment: Assignment) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_SLOW])  # read once for all ranks of this machine
        self.control, control = context.Pipe()
        self.batches, batches = context.Pipe()
        self.transfers, transfers = context.Pipe()
        self.rank = assignment.rank
        shard = assignment.blueprint.shard(assignment.rank)
        self.name = f"rank {assignment.rank} (stage {shard.stage}, tensor rank {shard.tensor_rank})"
        self.process = context.Process(
            target=process.main, args=(assignment, control, batches, transfers), name=self.name, daemon=True
        )
        self.process.start()
        for theirs in (control, batches, transfers):
            theirs.close()

    @property
    def is_cause(self) -> bool:
        """Whether it did not just go because another one went."""
        return self.process.exitcode not in (None, process.WITHOUT_PEER)

    def reason(self) -> WorkerFailure:
        """Why it ended: what it said last, or how the process did."""
        self.process.join(_END_SECONDS)
        try:
            while self.control.poll():
                message = self.control.recv()
                if isinstance(message, Fault):
                    return WorkerFailure(message.reason, f"{self.name}: {message.text}")
        except (EOFError, OSError):
            pass
        return WorkerFailure(ExitReason.ENGINE_FAILED, f"{self.name} ended {_how(self.process.exitcode)}")


class RankProcesses:
    """All ranks of an instance but the one in this process."""

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        """Start them; they load side by side."""
        self._processes = [_RankProcess(assignment) for assignment in assignments]
        self._lost = threading.Event()
        self._failure: WorkerFailure | None = None

    @property
    def batches(self) -> list[Connection]:
        """Where each takes its batches from, in the order of ranks."""
        return [one.batches for one in self._processes]

    @property
    def transfers(self) -> list[Connection]:
        """Where each takes orders about its KV memory from, in the order of ranks."""
        return [one.transfers for one in self._processes]

    def loaded(self, progress: Callable[[int, float], None]) -> None:
        """Wait until all have loaded; `progress` gets a rank and its share.

        Raises `WorkerFailure` with the reason of the first that cannot.
        """
        self._await(Loaded, progress)

    def meet(self, port: int, join: Callable[[], None]) -> None:
        """Tell them where, `join` them, and wait until all are there. Raises `WorkerFailure`."""
        for one in self._processes:
            one.control.send(Meet(port))
        join()
        self._await(Met, lambda *_: None)

    def watch(self, failed: Callable[[WorkerFailure], None]) -> None:
        """From now on tell, from another thread, when one ends: the instance cannot go on without it."""
        threading.Thread(target=self._watch, args=(failed,), name="rank-watch", daemon=True).start()

    def failure(self) -> WorkerFailure | None:
        """Why a rank has ended, for a step that broke off: it may be noticed a moment later."""
        self._lost.wait(_CAUSE_SECONDS)
        return self._failure

    def kill(self) -> None:
        """End them all."""
        for one in self._processes:
            one.process.kill()
        for one in self._processes:
            one.process.join(_END_SECONDS)

    def _watch(self, failed: Callable[[WorkerFailure], None]) -> None:
        left = {one.process.sentinel: one for one in self._processes}
        gone: list[_RankProcess] = []
        while not any(one.is_cause for one in gone):
            ended = wait(list(left), _CAUSE_SECONDS if gone else None)
            if not ended:
                break
            gone.extend(left.pop(sentinel) for sentinel in ended)  # type: ignore[arg-type]
        cause = next((one for one in gone if one.is_cause), gone[0])
        self._failure = cause.reason()
        self._lost.set()
        failed(self._failure)

    def _await(self, kind: type[Loaded | Met], progress: Callable[[int, float], None]) -> None:
        """A message of `kind` from each; while they say anything, it may take as long as it takes."""
        left = {one.control: one for one in self._processes}
        while left:
            ready = wait(list(left), _SILENT_SECONDS)
            if not ready:
                names = ", ".join(one.name for one in left.values())
                raise WorkerFailure(ExitReason.ENGINE_FAILED, f"nothing heard for {_SILENT_SECONDS:g} s from {names}")
            for control in ready:
                assert isinstance(control, Connection), "only pipes are waited for"
                message = _heard(left[control])
                if isinstance(message, Progress):
                    progress(left[control].rank, message.share)
                elif isinstance(message, kind):
                    del left[control]


def _heard(one: _RankProcess) -> Progress | Loaded | Met:
    try:
        message = one.control.recv()
    except (EOFError, OSError):
        raise one.reason() from None
    if isinstance(message, Fault):
        raise WorkerFailure(message.reason, f"{one.name}: {message.text}")
    assert isinstance(message, Progress | Loaded | Met), f"{one.name} said {message}"
    return message


def _how(exitcode: int | None) -> str:
    if exitcode is None:
        return "its pipe, but not itself"
    return f"by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"with status {exitcode}"
