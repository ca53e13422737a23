"""Starts the other ranks of an instance, and ends them."""

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Final

from distserve_worker.exiting import WorkerFailure
from distserve_worker.server.ranks import process
from distserve_worker.server.ranks.messages import Assignment, Loaded, Meet, Met
from distserve_worker.server.ranks.watching import Listener, RankWatch, WatchedRank

_SLOW: Final = "distserve_worker.engine.building"
_END_SECONDS: Final = 5.0


class _RankProcess:
    """One rank, and this side's ends of the three ways to it."""

    def __init__(self, assignment: Assignment) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_SLOW])  # read once for all ranks of this machine
        self.control, control = context.Pipe()
        self.batches, batches = context.Pipe()
        self.transfers, transfers = context.Pipe()
        shard = assignment.blueprint.shard(assignment.rank)
        name = f"rank {assignment.rank} (stage {shard.stage}, tensor rank {shard.tensor_rank})"
        self.process = context.Process(
            target=process.main, args=(assignment, control, batches, transfers), name=name, daemon=True
        )
        self.process.start()
        for theirs in (control, batches, transfers):
            theirs.close()
        self.watched = WatchedRank(assignment.rank, name, self.control, self.process)


class RankProcesses:
    """All ranks of an instance but the one in this process, watched from their start: it cannot go on without them."""

    def __init__(self, assignments: Sequence[Assignment], listener: Listener) -> None:
        """Start them; they load side by side. `listener` hears of them until they are killed."""
        self._processes = [_RankProcess(assignment) for assignment in assignments]
        self._watch = RankWatch([one.watched for one in self._processes], listener)

    @property
    def batches(self) -> list[Connection]:
        """Where each takes its batches from, in the order of ranks."""
        return [one.batches for one in self._processes]

    @property
    def transfers(self) -> list[Connection]:
        """Where each takes orders about its KV memory from, in the order of ranks."""
        return [one.transfers for one in self._processes]

    def wait_until_loaded(self) -> None:
        """All of them. Raises `WorkerFailure` with the reason of the first that cannot."""
        self._watch.wait_for(Loaded)

    def meet(self, port: int, join: Callable[[], None]) -> None:
        """Tell them where, `join` them, and wait until all are there. Raises `WorkerFailure`."""
        try:
            for one in self._processes:
                one.control.send(Meet(port))
        except ConnectionError:
            pass  # a rank has ended, and the watch tells why
        else:
            join()
        self._watch.wait_for(Met)

    def failure(self) -> WorkerFailure | None:
        """Why a rank has ended, for a step that broke off: it may be noticed a moment later."""
        return self._watch.failure()

    def kill(self) -> None:
        """End them all; nobody hears of that."""
        self._watch.hush()
        for one in self._processes:
            one.process.kill()
        for one in self._processes:
            one.process.join(_END_SECONDS)
        self._watch.join(_END_SECONDS)
