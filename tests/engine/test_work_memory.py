"""What a step computes in is known before anything is loaded, and grows with what can be asked for."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from distserve_worker.engine.blueprint import Blueprint, EngineConfig, EngineRole, blueprint_of
from distserve_worker.engine.parallel import Grid
from distserve_worker.engine.work_memory import most_tokens, work_bytes

GIB: Final = 1 << 30
LLAMA_8B: Final = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def plan(folder: Path, role: EngineRole = "prefill", **fields: Any) -> Blueprint:
    usual: dict[str, Any] = {"dtype": "BF16", "device": "cuda", "max_model_length": 8192, "max_batch_tokens": 2048}
    return blueprint_of(EngineConfig(role, folder, 32 * GIB, **(usual | fields)))


def test_a_long_prompt_alone_counts_and_not_what_fills_a_batch(folder: Path) -> None:
    """Gate, up and their product of every token, beside its hidden states, and which of them a tile of it sees."""
    short, long = (plan(folder, max_model_length=length) for length in (2048, 131072))
    each = (6 * 4096 + 3 * 14336) * 2 + 256 * (2 + 2)
    assert work_bytes(long, 0) - work_bytes(short, 0) == (131072 - 2048) * each
    least = plan(folder, max_model_length=1024)
    assert work_bytes(short, 0) - work_bytes(least, 0) == 1024 * 256 * (2 + 2)


def test_scores_are_counted_where_they_come_out(folder: Path) -> None:
    stages = plan(folder, grid=Grid(1, 2), max_running=64)
    assert work_bytes(stages, 0) - work_bytes(stages, 1) == 64 * 128256 * 4 * 4


def test_hidden_states_wait_between_stages_in_both_directions(folder: Path) -> None:
    """At the stages in the middle: four steps that come, and four that go."""
    middle, last = (work_bytes(plan(folder, grid=Grid(1, 4)), rank) for rank in (1, 0))
    scores = 64 * 128256 * 4 * 4
    assert middle - (last - scores) == 4 * 8192 * 4096 * 2


def test_ranks_of_a_stage_share_the_width_of_a_layer(folder: Path) -> None:
    alone, together = (plan(folder, grid=Grid(tp)) for tp in (1, 4))
    saved = work_bytes(alone, 0) - work_bytes(together, 3)
    found = (alone.rank_cache_bytes(0) - together.rank_cache_bytes(3)) // 32
    assert saved - found == 8192 * 3 * 14336 * 3 // 4 * 2


def test_kv_on_its_way_to_another_instance_counts_where_it_travels(folder: Path) -> None:
    """A colocated worker hands none on; what it knows of its one running request is in the difference too."""
    apart, together = (work_bytes(plan(folder, role, max_running=1), 0) for role in ("prefill", "colocated"))
    tables, rows, masks = 3 * 8, 2 * 8 * 8, 16 * (2 * 2 + 1)
    assert apart - together == 2 * 8 * (64 << 20) - 8192 // 16 * (tables + rows + masks)


def test_int8_converts_one_matrix_at_a_time(folder: Path) -> None:
    quantized, plain = (work_bytes(plan(folder, dtype=dtype), 0) for dtype in ("INT8", "BF16"))
    assert quantized - plain == 2 * 14336 * 4096 * 2


@pytest.mark.parametrize(
    ("role", "chunk_tokens", "most"),
    [("prefill", None, 8192), ("colocated", None, 8192), ("colocated", 512, 512), ("decode", None, 64)],
)
def test_a_step_has_so_many_new_tokens_at_most(
    folder: Path, role: EngineRole, chunk_tokens: int | None, most: int
) -> None:
    config = plan(folder, role, chunk_tokens=chunk_tokens).config
    assert most_tokens(config, 8192) == most
