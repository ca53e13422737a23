"""Threads that run before they are needed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_START_SECONDS: Final = 60.0


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """A pool of `count` threads, all of them started.

    Later there may be no memory for a thread. Then `Thread.start` fails, with the work left in the pool's queue for
    whenever a thread comes free, or waits for ever. Raises `threading.BrokenBarrierError` when they do not start now.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    together = threading.Barrier(count + 1, timeout=_START_SECONDS)
    for _ in range(count):
        pool.submit(together.wait)
    together.wait()
    return pool
