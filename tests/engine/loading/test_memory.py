"""Loading takes hardly more memory than the weights that stay, and how much that is can be told before."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import distserve_testing.loading_peak
import pytest
import torch
from distserve_testing.families import FAMILIES, write_family
from distserve_testing.models import TinyLlama
from distserve_testing.ranks import Instance
from safetensors.torch import save_file
from transformers import GPT2Config, LlamaConfig, PretrainedConfig

from distserve_worker.engine.loading.inventory import all_shapes, weight_bytes
from distserve_worker.engine.parallel import WHOLE, Grid, shard_of
from distserve_worker.weights.reading import read_config

MB = 10**6


def _written(folder: Path, config: PretrainedConfig) -> Path:
    """A model of zeros in BF16, in one file."""
    config.save_pretrained(folder)
    shapes = all_shapes(read_config(folder))
    zeros = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    save_file(zeros, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def mostly_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with a vocabulary as Llama 3 has, whose head of its own is nearly all that its last stage has."""
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=128256,
    )
    return _written(tmp_path_factory.mktemp("mostly-head"), config)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of 124 million parameters: its last stage has a copy of the embeddings."""
    return _written(tmp_path_factory.mktemp("gpt2"), GPT2Config())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 200 MB in BF16, in one file."""
    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=16000,
    )
    folder = _written(tmp_path_factory.mktemp("large"), config)
    assert (folder / "model.safetensors").stat().st_size > 200 * MB
    return folder


def _loaded(path: Path, dtype: str, grid: Grid, rank: int, small: Path) -> dict[str, Any]:
    """By how many bytes a process grows that loads this, and how many of them are weights."""
    arguments = [str(argument) for argument in (path, dtype, grid.tp, grid.pp, rank, small)]
    command = [sys.executable, distserve_testing.loading_peak.__file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


@pytest.mark.parametrize(("dtype", "tp", "rank"), [("FP32", 1, 0), ("BF16", 2, 1), ("INT8", 1, 0)])
def test_the_peak_is_at_most_a_fifth_above_the_weights(
    large: Path, tiny: TinyLlama, dtype: str, tp: int, rank: int
) -> None:
    measured = _loaded(large, dtype, Grid(tp), rank, tiny.folder)
    assert 0.95 * measured["weights"] < measured["grown"] < 1.2 * measured["weights"]


@pytest.mark.parametrize(("dtype", "grid"), [("BF16", WHOLE), ("BF16", Grid(1, 2)), ("INT8", Grid(1, 2))], ids=str)
def test_the_peak_where_the_head_is_most_of_the_weights(
    mostly_head: Path, tiny: TinyLlama, dtype: str, grid: Grid
) -> None:
    measured = _loaded(mostly_head, dtype, grid, 0, tiny.folder)
    assert 0.95 * measured["weights"] < measured["grown"] < 1.2 * measured["weights"]


def test_the_peak_of_a_stage_with_a_copy_of_the_embeddings(gpt2: Path, tiny: TinyLlama) -> None:
    measured = _loaded(gpt2, "FP32", Grid(1, 4), 0, tiny.folder)
    assert 0.95 * measured["weights"] < measured["grown"] < 1.2 * measured["weights"]


def test_the_peak_of_a_gguf_file_too(smollm2_path: Path, tiny: TinyLlama) -> None:
    measured = _loaded(smollm2_path, "BF16", WHOLE, 0, tiny.folder)
    assert measured["grown"] < 1.2 * measured["weights"]


def test_bytes_of_a_large_model_are_known_from_its_configuration(large: Path) -> None:
    config = read_config(large)
    whole = {
        dtype: weight_bytes(config, shard_of(config, WHOLE, 0), dtype) for dtype in ("FP32", "BF16", "FP16", "INT8")
    }
    stored = sum(torch.Size(shape).numel() for shape in all_shapes(config).values())
    rotary = 64 * 4
    assert whole["FP32"] == 4 * stored + rotary
    assert whole["BF16"] == whole["FP16"] == 2 * stored + rotary
    assert whole["BF16"] / 2 < whole["INT8"] < whole["BF16"]


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_share_the_weights(tmp_path: Path, family: str) -> None:
    write_family(tmp_path, family, vocab_size=212)
    config = read_config(tmp_path)
    whole = weight_bytes(config, shard_of(config, WHOLE, 0), "FP32")
    halves = [weight_bytes(config, shard_of(config, Grid(2), rank), "FP32") for rank in range(2)]
    assert whole < sum(halves) < 1.2 * whole  # norms and learned positions are on both
    Instance(tmp_path, grid=Grid(2))
