"""File locks, which the kernel lets go when their holder ends in whatever way."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distserve_devcluster.errors import DevClusterError

POLL_SECONDS = 0.05


@contextmanager
def exclusive(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file `path`.

    Raises:
        DevClusterError: another process held it for all of `timeout_seconds`, or it is another user's.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DevClusterError(
            f"the lock file {path} can't be opened: {error}; is its folder another user's?"
        ) from error
    try:
        _acquire(descriptor, path, timeout_seconds)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DevClusterError(f"{path} is held by another process for {timeout_seconds:.0f} s") from None
        time.sleep(POLL_SECONDS)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file `path`; a missing file is free."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
