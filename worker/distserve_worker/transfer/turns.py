"""Bounds the transfers that use a GPU at once, so that its steps keep multiprocessors and memory."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from distserve_worker.engine.interface import MOST_STAGED

_POLL_SECONDS: Final = 0.05


class Turns:
    """Of one rank in one direction; any thread may take one.

    Who has one holds a chunk of memory (`CHUNK_BYTES`), and over NCCL `pynccl.MOST_BLOCKS` multiprocessors.

    A reader takes its own before it asks the serving side, which takes one for each that asks. So whoever has a turn to
    send waits for nobody else's, and ranks that do both cannot wait for each other in a ring.
    """

    def __init__(self, most: int = MOST_STAGED) -> None:
        self._free = threading.BoundedSemaphore(most)

    @contextmanager
    def one(self, check: Callable[[], None]) -> Iterator[None]:
        """Wait for a turn, which lasts as long as this; `check` is called again and again meanwhile and may raise."""
        check()
        while not self._free.acquire(timeout=_POLL_SECONDS):
            check()
        try:
            yield
        finally:
            self._free.release()
