"""Looks at a model's files before they are opened: to open a pipe is to wait for whoever writes into it."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from distserve_worker.weights.errors import ModelNotFound

_OTHERS: Final[Mapping[str, Callable[[int], bool]]] = {
    "a folder": stat.S_ISDIR,
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def is_there(file: Path) -> bool:
    """Whether there is such a file. Raises `ModelNotFound` where something else has its name."""
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no file can have this name
        return False
    except OSError as error:  # a link to itself, for one
        raise ModelNotFound(f"{file}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        found = next((name for name, holds in _OTHERS.items() if holds(mode)), "something else")
        raise ModelNotFound(f"{file}: no regular file but {found}")
    return True
