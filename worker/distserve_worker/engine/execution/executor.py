"""Runs batches: on the one rank there is, or on all ranks of an instance, this process being the driver."""

import queue
import threading
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Final, Protocol

import torch

from distserve_worker.engine.devices import memory_named, starving
from distserve_worker.engine.execution.batch import Batch
from distserve_worker.engine.execution.collectives import Incoming, StagePipe
from distserve_worker.engine.execution.rank import Rank


class Executor(Protocol):
    """Batches go in, logits come out, in the same order."""

    @property
    def depth(self) -> int:
        """Batches that can be on their way at once."""
        ...

    def submit(self, batch: Batch) -> None:
        """Begin a batch, which is not empty; there are fewer than `depth` on their way."""
        ...

    def collect(self) -> torch.Tensor:
        """Logits [rows, vocab] in FP32 of the oldest batch on its way, rows as in `Batch`.

        Raises `StepStarved` when there was no memory for it, and the ones that follow can be computed all the same.
        """
        ...


class OneRank:
    """An instance of a single process."""

    depth: Final = 1

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._batches: deque[Batch] = deque()

    def submit(self, batch: Batch) -> None:
        """See `Executor.submit`."""
        self._batches.append(batch)

    def collect(self) -> torch.Tensor:
        """See `Executor.collect`."""
        batch = self._batches.popleft()
        with starving(self._rank.memory.device):
            return self._rank.run(batch)


class Driver:
    """Rank 0, where the logits come out: tells all ranks what to compute."""

    def __init__(self, rank: Rank, others: Sequence[Connection], pipe: StagePipe, hidden: int) -> None:
        """`others`: where every other rank reads batches; `hidden`: width of the hidden states."""
        self._share = _Share(rank, pipe, hidden)
        self._others = others
        self.depth: Final = rank.shard.grid.pp

    def submit(self, batch: Batch) -> None:
        """See `Executor.submit`."""
        message = ForkingPickler.dumps(batch)
        for other in self._others:
            other.send_bytes(message)
        self._share.begin(batch)

    def collect(self) -> torch.Tensor:
        """See `Executor.collect`; other ranks would wait for what one has no memory for, so that ends the instance."""
        return self._share.end()


class Follower:
    """Any other rank: computes what the driver sends until that is gone."""

    def __init__(self, rank: Rank, driver: Connection, pipe: StagePipe, hidden: int) -> None:
        self._rank = rank
        self._driver = driver
        self._pipe = pipe
        self._share = _Share(rank, pipe, hidden)
        # The driver must never wait for this rank to read: that may be waiting for the driver in a collective.
        self._batches: queue.Queue[Batch | None] = queue.Queue(rank.shard.grid.pp + 1)

    @memory_named()
    def run(self) -> None:
        """Until the driver closes its end. Raises `PeerLost`, `ModelDoesNotFit`."""
        threading.Thread(target=self._read, name="batches", daemon=True).start()
        while self._take():
            out = self._share.end()
            if not self._rank.shard.is_last:
                self._pipe.send(out)

    def _read(self) -> None:
        try:
            while True:
                self._batches.put(self._driver.recv())
        except (EOFError, OSError):
            self._batches.put(None)

    def _take(self) -> bool:
        """Begin every batch that is here, one at least; False at the end."""
        while not self._share.begun or not self._batches.empty():
            batch = self._batches.get()
            if batch is None:
                return False
            self._share.begin(batch)
        return True


class _Share:
    """A rank's part of the batches on their way."""

    def __init__(self, rank: Rank, pipe: StagePipe, hidden: int) -> None:
        self._rank = rank
        self._pipe = pipe
        self._hidden = hidden
        self._begun: deque[tuple[Batch, Incoming | None]] = deque()

    @property
    def begun(self) -> int:
        """Batches that wait for `end`."""
        return len(self._begun)

    def begin(self, batch: Batch) -> None:
        """Make room for what comes from the stage before."""
        incoming = None
        if not self._rank.shard.is_first:
            memory = self._rank.memory
            incoming = self._pipe.expect((batch.new_tokens, self._hidden), self._rank.dtype, memory.device)
        self._begun.append((batch, incoming))

    def end(self) -> torch.Tensor:
        """Compute the oldest."""
        batch, incoming = self._begun.popleft()
        return self._rank.run(batch, incoming.wait() if incoming is not None else None)
