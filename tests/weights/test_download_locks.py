"""A lock of the cache is awaited as long as whoever holds it writes, and no longer."""

import errno
import fcntl
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from distserve_testing.hub_client import client_with
from distserve_testing.hubs import REPOSITORY, Hub, played_hub
from huggingface_hub.utils._fixes import WeakFileLock

from distserve_worker.weights.download_locks import Stillness
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.locating import locate
from distserve_worker.weights.patience import Patience

WEIGHTS = b"weights"
HALF = ("a.incomplete", 5, 1)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository/config.json").write_text("{}")
    (tmp_path / "repository/model.safetensors").write_bytes(WEIGHTS)
    with played_hub(tmp_path / "repository") as hub:
        hub.open.set()
        yield hub


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Of the file with the weights."""
    folder = tmp_path / "home/hub/.locks/models--org--tiny"
    folder.mkdir(parents=True)
    return folder / f"{hashlib.sha256(WEIGHTS).hexdigest()}.lock"


def _located(hub: Hub, home: Path) -> Path:
    with client_with(hub.environment(home)):
        return locate(REPOSITORY, patience=Patience(still_seconds=0.2))


@pytest.mark.filterwarnings("ignore:flock not supported")
@pytest.mark.parametrize("known", [True, False], ids=["locks are known", "locks are files"])
def test_a_lock_that_nobody_gives_back_is_named_with_what_helps(
    hub: Hub, tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    if not known:
        monkeypatch.setattr(fcntl, "flock", _unknown)
    words = rf"{REPOSITORY}: another process has locked {lock} and has written nothing for 0\.2 s: .*remove that file"
    with WeakFileLock(lock), pytest.raises(ModelNotFound, match=words):
        _located(hub, tmp_path / "home")
    path = _located(hub, tmp_path / "home")
    assert (path / "model.safetensors").read_bytes() == WEIGHTS


def _unknown(*_: object) -> None:
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_time_counts_from_when_something_was_written_last() -> None:
    stillness = Stillness(frozenset(), 100.0)
    assert stillness.seconds(frozenset(), 103.0) == 3.0
    assert stillness.seconds(frozenset({HALF}), 104.0) == 0.0
    assert stillness.seconds(frozenset({HALF}), 109.0) == 5.0
    assert stillness.seconds(frozenset({("a.incomplete", 5, 2)}), 110.0) == 0.0
    assert stillness.seconds(frozenset(), 111.0) == 0.0
    assert stillness.seconds(frozenset(), 112.0) == 1.0
