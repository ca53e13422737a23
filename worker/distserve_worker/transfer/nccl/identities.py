"""NCCL's identities, used sparingly: one under which two ranks do not meet costs a thread and a descriptor for good.

NCCL listens for both from when it makes an identity until they have come, and cannot be told that they will not.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.nccl.pynccl import unique_id

log = logging.getLogger(__name__)

_MOST_UNMET: Final = 32
_FIRST_PAUSE_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0


class Identities:
    """Those of one process. When too many were not met under, NCCL is not tried again there; any thread may use it."""

    def __init__(self, most_unmet: int = _MOST_UNMET) -> None:
        self._most_unmet = most_unmet
        self._unmet = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[bytes]:
        """A new one; the meeting is what is done under this. Raises `TransferError`, UNREACHABLE when NCCL is off."""
        if self._unmet >= self._most_unmet:
            raise TransferError(Fault.UNREACHABLE, self._off)
        identity = unique_id()
        try:
            yield identity
        except BaseException:
            self._count()
            raise

    @property
    def _off(self) -> str:
        return f"NCCL is off in this process, for {self._most_unmet} meetings have failed"

    def _count(self) -> None:
        with self._lock:
            self._unmet += 1
            if self._unmet == self._most_unmet:
                log.error("%s; KV goes other ways until it is started again", self._off)


class Attempts:
    """Meetings of one pair of ranks, used by one thread at a time: the pause after a failed one doubles each time."""

    def __init__(self, identities: Identities, clock: Callable[[], float] = time.monotonic) -> None:
        self._identities = identities
        self._clock = clock
        self._pause = _FIRST_PAUSE_SECONDS
        self._next = clock()

    def check(self) -> None:
        """Raises `TransferError` (UNREACHABLE) during a pause."""
        left = self._next - self._clock()
        if left > 0:
            text = f"the last meeting over NCCL failed; there is another one in {left:.0f} s at the earliest"
            raise TransferError(Fault.UNREACHABLE, text)

    @contextmanager
    def identity(self) -> Iterator[bytes]:
        """See `Identities.one`."""
        with self._identities.one() as identity:
            try:
                yield identity
            except BaseException:
                self._next = self._clock() + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
                raise
        self._pause = _FIRST_PAUSE_SECONDS
