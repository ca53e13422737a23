"""Memory of the CPU that counts as that of a GPU: what is begun on it is done at once, and told as over later."""

import contextlib
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
import torch

from distserve_worker.transfer.memory import device
from distserve_worker.transfer.nccl import first_block


class Event:
    """One that has happened when it is waited for, or has been looked at a few times."""

    looks: ClassVar[int] = 3
    waits: ClassVar[list[Callable[[], None]]] = []  # what is done at the next one

    def __init__(self) -> None:
        self._left = self.looks

    def record(self, _stream: "Stream") -> None:
        pass

    def query(self) -> bool:
        self._left -= 1
        return self._left < 0

    def synchronize(self) -> None:
        if self.waits:
            self.waits.pop()()


class Stream:
    """One that is never done: others have always begun something on it."""

    def __init__(self, _device: torch.device) -> None:
        pass

    def wait_stream(self, _other: "Stream") -> None:
        pass


@contextlib.contextmanager
def played_gpu(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Until its end, and that of `patch`."""
    patch.setattr(torch.cuda, "Stream", Stream)
    patch.setattr(torch.cuda, "Event", Event)
    patch.setattr(device, "on_gpu", contextlib.nullcontext)
    patch.setattr(device, "on_stream", contextlib.nullcontext)
    patch.setattr(first_block, "on_stream", contextlib.nullcontext)
    device.copying_stream.cache_clear()
    yield
    device.copying_stream.cache_clear()
