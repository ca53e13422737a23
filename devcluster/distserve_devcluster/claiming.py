"""Takes a folder for a cluster and clears it again; what is not the cluster's own there, or behind a link, stays."""

import os
import re
import shutil
import stat
from pathlib import Path

from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import StateFolder

# All that a cluster makes, except its logs and locks. With a number, what a killed process did not get to rename.
_STATE = re.compile(
    r"(images|programs)\.(json|\d+)|(spec\.json|kubeconfig)(\.\d+)?|pki|etcd|run|node-\d+",
)


def claim(state: StateFolder) -> None:
    """Make the folder, or find it as an earlier cluster left it.

    Raises:
        DevClusterError: it can't be written, or holds what no cluster has put there.
    """
    try:
        state.path.mkdir(parents=True, exist_ok=True)
        if not is_claimed(state):
            _require_empty(state.path)
            # The first thing in it: another process that starts the same cluster must not take it for a stranger's.
            os.close(os.open(state.change_lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        _require_no_link(state.logs)
        state.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise DevClusterError(
            f"the state folder {state.path} can't be made: {error}; choose another with DISTSERVE_STATE"
        ) from error


def is_claimed(state: StateFolder) -> bool:
    """Whether the folder is a cluster's own.

    Raises:
        DevClusterError: it is a link, and may be anybody's.
    """
    _require_no_link(state.path)
    try:
        return stat.S_ISREG(state.change_lock.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def clear(state: StateFolder) -> None:
    """Remove what a cluster that has ended left in its folder, except logs and locks."""
    for path in state.path.iterdir():
        if _STATE.fullmatch(path.name):
            _remove(path)


def _require_empty(folder: Path) -> None:
    found = next(folder.iterdir(), None)
    if found is not None and not is_claimed(StateFolder(folder)):
        raise DevClusterError(
            f"the state folder {folder} holds {found.name}, which is no cluster's: choose another --name or"
            " DISTSERVE_STATE"
        )


def _require_no_link(path: Path) -> None:
    if path.is_symlink():
        raise DevClusterError(
            f"{path} is a symbolic link, and nothing behind it is touched: remove it, or choose another --name or"
            " DISTSERVE_STATE"
        )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
