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

_FIRST_UNMET: Final = 32
_ONE_MORE_SECONDS: Final = 6 * 3600.0  # so that NCCL comes back, and a process has 1500 after a year at most
_FIRST_PAUSE_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0


class Identities:
    """Those of one process; any thread may use it.

    When `first_unmet` were not met under, NCCL rests there: there may be one more for each six hours of its life.
    """

    def __init__(self, first_unmet: int = _FIRST_UNMET, clock: Callable[[], float] = time.monotonic) -> None:
        self._first_unmet = first_unmet
        self._clock = clock
        self._began = clock()
        self._unmet = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[bytes]:
        """A new one; the meeting is what is done under this. Raises `TransferError`, UNREACHABLE while NCCL rests."""
        if self._is_resting:
            raise TransferError(
                Fault.UNREACHABLE, f"NCCL rests in this process, for {self._unmet} meetings have failed"
            )
        identity = unique_id()
        try:
            yield identity
        except BaseException:
            self._count()
            raise

    @property
    def _is_resting(self) -> bool:
        more = int((self._clock() - self._began) / _ONE_MORE_SECONDS)
        return self._unmet >= self._first_unmet + more

    def _count(self) -> None:
        with self._lock:
            self._unmet += 1
            if self._is_resting:
                text = "%d meetings over NCCL have failed in this process; KV goes other ways for up to %g hours"
                log.error(text, self._unmet, _ONE_MORE_SECONDS / 3600)


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
    def one(self) -> Iterator[Identities]:
        """Whatever fails under it is followed by a pause, be it before or after both ranks have met."""
        try:
            yield self._identities
        except BaseException:
            self._next = self._clock() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            raise
        self._pause = _FIRST_PAUSE_SECONDS
