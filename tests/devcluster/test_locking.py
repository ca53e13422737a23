"""Locks are the kernel's: they go with their holder."""

import subprocess
import sys
from pathlib import Path

import pytest

from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locking import exclusive, is_held


def test_a_missing_lock_file_is_free(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none")


def test_a_held_lock_is_seen_and_waited_for_until_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    with exclusive(path, 1):
        assert is_held(path)
        with pytest.raises(DevClusterError, match="is held by another process"), exclusive(path, 0):
            pass
    assert not is_held(path)


def test_a_lock_goes_with_a_killed_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = f"""
import sys
from pathlib import Path
from distserve_devcluster.locking import exclusive
with exclusive(Path({str(path)!r}), 10):
    print("held", flush=True)
    sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "held\n"
        assert is_held(path)
        holder.kill()
        holder.wait()
        assert not is_held(path)


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(DevClusterError, match=rf"lock file {path} can't be opened"), exclusive(path, 0):
            pass
    assert not (tmp_path / "elsewhere").exists()
