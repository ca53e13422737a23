"""What has the name of a model's file and is none is told, and never waited for."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.files import is_there
from distserve_worker.weights.reading import read_config
from distserve_worker.weights.tokenizer_digest import TOKENIZER_FILES, tokenizer_digest


def _bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "no regular file but a pipe"),
        (os.mkdir, "no regular file but a folder"),
        (_bound, "no regular file but a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file but a device"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
    ids=["pipe", "folder", "socket", "device", "loop"],
)
def test_what_is_no_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], words: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    file = Path("model.safetensors")
    make(file)
    with pytest.raises(ModelNotFound, match=f"^model.safetensors: {words}$"):
        is_there(file)


@pytest.mark.parametrize("name", ["a", "a/b", "none", "nul\0byte"])
def test_a_file_is_there_or_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "none").symlink_to("nothing")
    assert is_there(tmp_path / name) is (name == "a")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_pipe_in_the_place_of_a_configuration_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelNotFound, match=f"/{name}: no regular file but a pipe"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_a_pipe_in_the_place_of_a_tokenizer_is_named(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelNotFound, match=f"/{name}: no regular file but a pipe"):
        tokenizer_digest(tmp_path)
