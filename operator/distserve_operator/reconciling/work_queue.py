"""Deployments that need a pass: each at most once in the queue and at most once at work.

So the queue is bounded by the number of deployments.
"""

import asyncio
import time
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 30.0


class WorkQueue(Generic[K]):
    """Keys with coalescing, timers and exponential back-off. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[K, None] = {}
        self._working: dict[K, float] = {}
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: K) -> None:
        """A pass is needed; one that is running now does not count, it may have looked before."""
        if key in self._working:
            self._again.add(key)
        else:
            self._waiting[key] = None
            self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """A pass is needed in `seconds`; an earlier timer stays."""
        when = asyncio.get_running_loop().time() + seconds
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= when:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_at(when, self._ring, key)

    def retry(self, key: K) -> float:
        """A pass has failed: another one after a delay that doubles each time. Returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(_FIRST_DELAY_SECONDS * 2.0 ** min(failures, 10), _LONGEST_DELAY_SECONDS)
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: K) -> None:
        """A pass has done all it wanted: the next failure starts with the shortest delay."""
        self._failures.pop(key, None)

    async def take(self) -> K:
        """The next key; it must be given back by `done`."""
        while not self._waiting:
            self._changed.clear()
            await self._changed.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._working[key] = time.monotonic()
        return key

    def done(self, key: K) -> None:
        """The pass is over, however it went."""
        del self._working[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def longest_pass(self) -> float:
        """Seconds since the start of the oldest running pass."""
        return max((time.monotonic() - start for start in self._working.values()), default=0.0)

    def _ring(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
