"""Waits for another process that downloads the same file, as long as somebody does.

The hub's library awaits its locks for ever, and where a file system knows none, a file stands for a lock: of a process
that was killed it stays.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from huggingface_hub import file_download
from huggingface_hub.utils._fixes import WeakFileLock

_TRIES: Final = 20  # to get a lock that nobody gives back

Written = frozenset[tuple[str, int, int]]  # name, size in bytes and time of each file


class LockHeld(Exception):  # noqa: N818 - what is the case, as the others of this package
    """Nobody gives back the lock of a file, and nobody writes to it; the text names the lock's file."""


def give_up_after(still_seconds: float) -> None:
    """From now on the library's downloads raise `LockHeld` when nobody has written for so long what they wait for."""

    @contextmanager
    def lock(path: str | Path) -> Iterator[None]:
        with ExitStack() as held:
            _wait(held, Path(path), still_seconds)
            yield

    # the library has no setting for it
    file_download.WeakFileLock = lock  # type: ignore[attr-defined, assignment]


class Stillness:
    """For how long nobody has written."""

    def __init__(self, written: Written, now: float) -> None:
        self._written = written
        self._since = now

    def seconds(self, written: Written, now: float) -> float:
        """Until `now`, when so much is written."""
        if written != self._written:
            self._written, self._since = written, now
        return now - self._since


def _wait(held: ExitStack, path: Path, still_seconds: float) -> None:
    stillness = Stillness(_written(path), time.monotonic())
    while True:
        try:
            held.enter_context(WeakFileLock(path, timeout=still_seconds / _TRIES))
        except TimeoutError as error:
            if stillness.seconds(_written(path), time.monotonic()) >= still_seconds:
                raise LockHeld(_held(path, still_seconds)) from error
        else:
            return


def _written(path: Path) -> Written:
    """What processes have written of the file that is locked: `.locks/REPOSITORY/DIGEST.lock` is the lock's place."""
    blobs = path.parents[2] / path.parent.name / "blobs"
    found = set()
    for part in blobs.glob(f"{path.stem}.*.incomplete"):
        try:
            status = part.stat()
        except FileNotFoundError:  # it is whole, or its process has given up
            continue
        found.add((part.name, status.st_size, status.st_mtime_ns))
    return frozenset(found)


def _held(path: Path, still_seconds: float) -> str:
    return (
        f"another process has locked {path} and has written nothing for {still_seconds:g} s: where no pod downloads "
        "this model, remove that file (a killed pod leaves it where the volume's file system knows no file locks)"
    )
