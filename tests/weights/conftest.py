"""A repository of a model, the hub that has it, and the folder where processes keep what they download."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from distserve_testing.hubs import WEIGHTS, Hub, played_hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "original").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "original/params.json"):
        (folder / name).write_text("{}")
    for name in ("model.safetensors", "consolidated.safetensors", "original/model.safetensors", "model.bin"):
        (folder / name).write_bytes(WEIGHTS)
    return folder


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    with played_hub(folder) as hub:
        hub.open.set()
        yield hub


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder that all processes share, as a claim."""
    return tmp_path / "home"
