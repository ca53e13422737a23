"""NCCL between threads of one process: a `Pair` that moves bytes of CPU memory, and identities that are counted."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.nccl import identities, link, serving
from distserve_worker.transfer.nccl.pynccl import ID_BYTES, SENDER

_POLL_SECONDS: Final = 0.005


class PlayedNccl:
    """What its pairs say to each other goes through here."""

    def __init__(self) -> None:
        self.made = 0  # identities
        self.met = 0  # ends of communicators
        self.aborted = 0
        self.aborted_by_readers = 0
        self.missing = False
        self.spoilt = False  # bytes arrive as others than were sent
        self.receiving: queue.Queue[bool] = queue.Queue()  # what a receiver begins, told to the test
        self._lock = threading.Lock()
        self._wires: dict[bytes, _Wire] = {}
        self._numbers = itertools.count(1)

    def require(self) -> None:
        if self.missing:
            raise TransferError(Fault.UNREACHABLE, "NCCL cannot be loaded")

    def unique_id(self) -> bytes:
        self.made += 1
        return next(self._numbers).to_bytes(ID_BYTES, "big")

    def pair(self, identity: bytes, rank: int, _device: torch.device, check: Callable[[], None]) -> "PlayedPair":
        with self._lock:
            wire = self._wires.setdefault(identity, _Wire())
        wire.come(rank, check)
        self.met += 1
        return PlayedPair(self, wire, rank)


class _Wire:
    def __init__(self) -> None:
        self.content: queue.Queue[torch.Tensor] = queue.Queue()
        self.taken: queue.Queue[bool] = queue.Queue()
        self._here = {0: threading.Event(), 1: threading.Event()}

    def come(self, rank: int, check: Callable[[], None]) -> None:
        self._here[rank].set()
        while not self._here[1 - rank].wait(_POLL_SECONDS):
            check()


class PlayedPair:
    """See `Pair`."""

    stream = None

    def __init__(self, nccl: PlayedNccl, wire: _Wire, rank: int) -> None:
        self._nccl = nccl
        self._wire = wire
        self._rank = rank
        self._room: torch.Tensor | None = None

    def wait_for(self, stream: Any) -> None:
        pass

    def send(self, memory: torch.Tensor, _check: Callable[[], None]) -> None:
        content = memory.clone()
        if self._nccl.spoilt:
            content[0] += 1
        self._wire.content.put(content)

    def receive(self, memory: torch.Tensor, _check: Callable[[], None]) -> None:
        self._room = memory
        self._nccl.receiving.put(True)

    def wait(self, check: Callable[[], None]) -> None:
        if self._rank == SENDER:
            _next(self._wire.taken, check)
            return
        assert self._room is not None, "it receives"
        self._room.copy_(_next(self._wire.content, check))
        self._room = None
        self._wire.taken.put(True)

    def abort(self) -> None:
        self._nccl.aborted += 1
        self._nccl.aborted_by_readers += self._rank != SENDER


def _next(of: "queue.Queue[Any]", check: Callable[[], None]) -> Any:
    while True:
        with contextlib.suppress(queue.Empty):
            return of.get(timeout=_POLL_SECONDS)
        check()


@contextlib.contextmanager
def played_nccl(patch: pytest.MonkeyPatch) -> Iterator[PlayedNccl]:
    """In place of NVIDIA's bindings, until the end of `patch`."""
    played = PlayedNccl()
    patch.setattr(identities, "unique_id", played.unique_id)
    for module in (link, serving):
        patch.setattr(module, "Pair", played.pair)
    patch.setattr(link, "require", played.require)
    yield played
