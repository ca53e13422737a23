"""A process on a CPU grows by no more in a step than is counted before anything is loaded."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import distserve_testing.step_peak
import pytest
from distserve_testing.held_memory import HeldMemory
from distserve_testing.models import write_tiny_llama

from distserve_worker.engine.blueprint import EngineConfig, blueprint_of
from distserve_worker.engine.building import build_rank, engine_of
from distserve_worker.engine.execution.executor import OneRank
from distserve_worker.engine.interface import Reserved, Sampling, Token, Work
from distserve_worker.engine.work_memory import work_bytes


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


def test_many_long_requests_that_run_hold_what_is_counted(tmp_path: Path) -> None:
    """Their K and V of a layer, which attention copies, have 64 MiB: four times what a CPU copies at once."""
    heads: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8}
    write_tiny_llama(tmp_path, **heads, num_hidden_layers=1, vocab_size=300, max_position_embeddings=1024)
    blueprint = blueprint_of(EngineConfig("decode", tmp_path, 64 << 20, max_model_length=1024, max_running=16))
    built = build_rank(blueprint, 0)
    engine = engine_of(blueprint, built, OneRank(built.rank))
    sampling = Sampling(temperature=0.7, seed=1, top_p=0.9, frequency_penalty=0.5, logprobs=5)
    for number in range(16):
        prompt = tuple((number + place) % 300 for place in range(1000))
        engine.admit(Work(str(number), prompt, (1,), sampling, max_tokens=20))
    for happening in engine.step():
        assert isinstance(happening, Reserved)
        engine.imported(happening.request_id)  # nothing but zeros
    with HeldMemory() as held:
        assert [type(happening) for happening in engine.step()] == [Token] * 16
    counted = work_bytes(blueprint, 0)
    assert counted / 2 < held.most <= counted
