"""A process on a CPU grows by no more in a step than is counted before anything is loaded."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import distserve_testing.step_peak
import pytest
from distserve_testing.models import write_tiny_llama


def grown_and_counted(folder: Path, dtype: str, prompts: int, tokens: int) -> tuple[int, int]:
    """Bytes."""
    arguments = [str(argument) for argument in (folder, dtype, prompts, tokens)]
    command = [sys.executable, distserve_testing.step_peak.__file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    measured = json.loads(done.stdout)
    return measured["grown"], measured["counted"]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 110 kB a token in an MLP."""
    folder = tmp_path_factory.mktemp("wide")
    changes: dict[str, Any] = {
        "hidden_size": 512,
        "intermediate_size": 8192,
        "num_attention_heads": 8,
        "num_hidden_layers": 1,
    }
    write_tiny_llama(folder, **changes, vocab_size=300, max_position_embeddings=8192)
    return folder


@pytest.mark.parametrize("dtype", ["FP32", "BF16", "INT8"])
def test_a_long_prompt_alone_grows_a_process_by_what_is_counted(wide: Path, dtype: str) -> None:
    """As a whole it would take 8000 times 110 kB in FP32, 15 times as much."""
    grown, counted = grown_and_counted(wide, dtype, 1, 8000)
    assert grown < 1.2 * counted


def test_many_prompts_with_all_that_can_be_asked_for_too(tmp_path: Path) -> None:
    """Each has scores of 0.8 MB."""
    write_tiny_llama(tmp_path, vocab_size=49152, max_position_embeddings=8192)
    grown, counted = grown_and_counted(tmp_path, "FP32", 256, 2)
    assert grown < 1.2 * counted
