"""A tiny model to measure."""

from pathlib import Path

import pytest
from distserve_testing.models import write_tiny_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_tiny_llama(folder)
    return folder
