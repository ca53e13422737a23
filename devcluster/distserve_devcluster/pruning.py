"""Removes old builds from the cache, except those that a process holds: two users of one cache do no harm."""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

KEPT_BUILDS = 3
KEPT_LOGS = 3
_DOOMED = ".pruned-"


def hold(build: Path) -> bool:
    """Keep the build from being pruned for as long as this process lives; False when there is none (any more).

    The lock belongs to a descriptor that is left open on purpose, so it ends with the process, however that happens.
    """
    try:
        descriptor = os.open(build, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not _is_still(build, descriptor):
        os.close(descriptor)
        return False
    with suppress(PermissionError):  # another user's build
        os.utime(descriptor)
    return True


def prune(folder: Path, program: str) -> None:
    """Keep the builds of `program` that were used last and those that are held; the rest goes, with its logs.

    Only one process may do so at a time; others may hold builds meanwhile.
    """
    for left in folder.glob(f"{_DOOMED}*"):
        shutil.rmtree(left, ignore_errors=True)
    builds = [path for path in folder.iterdir() if path.name[0] != "." and (path / program).exists()]
    for build in _newest_first(builds)[KEPT_BUILDS:]:
        _remove_unless_held(build)
    failed = [log for log in folder.glob("*.log") if not log.with_suffix("").exists()]
    for log in _newest_first(failed)[KEPT_LOGS:]:
        with suppress(PermissionError):
            log.unlink(missing_ok=True)


def _newest_first(paths: list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _remove_unless_held(build: Path) -> None:
    descriptor = os.open(build, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid != os.geteuid():
            return
        # In one step, so that nobody finds half of it; who waits for the lock sees that the name has gone.
        doomed = build.rename(build.with_name(f"{_DOOMED}{build.name}"))
    except (BlockingIOError, PermissionError):
        return
    finally:
        os.close(descriptor)
    shutil.rmtree(doomed, ignore_errors=True)
    build.with_name(f"{build.name}.log").unlink(missing_ok=True)


def _is_still(build: Path, descriptor: int) -> bool:
    try:
        found = build.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))
