"""Old builds leave the cache, but never one that a process uses."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distserve_devcluster.pruning import hold, prune


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Five builds of `hello`, `v4` the one used last, two of another program, and logs of each and of failed builds."""
    for number in range(5):
        make(tmp_path / f"v{number}", "hello", number)
    for number in range(2):
        make(tmp_path / f"other{number}", "other", number)
    for number in range(5):
        log = tmp_path / f"failed{number}.log"
        log.write_text("why")
        os.utime(log, (number, number))
    (tmp_path / "build.lock").touch()
    return tmp_path


def make(build: Path, program: str, used: int) -> None:
    build.mkdir()
    (build / program).write_text("a program")
    build.with_name(f"{build.name}.log").write_text("how it was built")
    os.utime(build, (used, used))


def builds(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir()}


@contextmanager
def another_process_holding(build: Path) -> Iterator[None]:
    script = "import sys; from pathlib import Path; from distserve_devcluster.pruning import hold\n"
    script += "print(hold(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(build)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        try:
            yield
        finally:
            holder.communicate()


def test_the_three_builds_that_were_used_last_stay(cache: Path) -> None:
    prune(cache, "hello")
    assert builds(cache) == {"v2", "v3", "v4", "other0", "other1"}
    logs = {path.stem for path in cache.glob("*.log")}
    assert logs == {"v2", "v3", "v4", "other0", "other1", "failed2", "failed3", "failed4"}
    assert (cache / "build.lock").exists()


def test_a_build_that_another_process_uses_stays_until_that_ends(cache: Path) -> None:
    with another_process_holding(cache / "v0"):
        os.utime(cache / "v0", (0, 0))
        prune(cache, "hello")
        assert builds(cache) == {"v0", "v2", "v3", "v4", "other0", "other1"}
        assert (cache / "v0" / "hello").exists()
    prune(cache, "hello")
    assert "v0" not in builds(cache)


def test_using_a_build_again_makes_it_the_newest(cache: Path) -> None:
    with another_process_holding(cache / "v0"):
        pass
    prune(cache, "hello")
    assert builds(cache) >= {"v0", "v3", "v4"}
    assert "v2" not in builds(cache)


def test_a_build_that_is_gone_cannot_be_held(cache: Path) -> None:
    assert not hold(cache / "v9")
    prune(cache, "hello")
    assert not hold(cache / "v0")


def test_what_an_interrupted_pruning_left_is_removed(cache: Path) -> None:
    make(cache / ".pruned-before", "hello", 9)
    prune(cache, "hello")
    assert ".pruned-before" not in builds(cache)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs a machine on which the tests run as root: only root makes files of others"
)
def test_the_build_of_another_user_stays(cache: Path) -> None:
    os.chown(cache / "v0", 4711, 4711)
    prune(cache, "hello")
    assert "v0" in builds(cache)
    assert "v1" not in builds(cache)
