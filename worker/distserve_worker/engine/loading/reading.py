"""Reads bytes of a file to where they are wanted."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distserve_worker.weights.errors import ModelInvalid


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file open for reading at any place; not mapped, so that what was read leaves the memory of the process."""

    path: Path
    descriptor: int

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill a buffer of bytes from `offset` on. Raises `ModelInvalid` at the end of the file."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self.descriptor, [buffer[done:]], offset + done)
            if count == 0:
                raise ModelInvalid(f"{self.path}: truncated while it was read: it ends at byte {offset + done}")
            done += count


@contextmanager
def opened(path: Path) -> Iterator[OpenFile]:
    """The file `path`, closed in the end."""
    with path.open("rb", buffering=0) as file:
        yield OpenFile(path, file.fileno())
