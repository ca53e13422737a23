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
from transformers import LlamaConfig

from distserve_worker.engine.loading.inventory import all_shapes, weight_bytes
from distserve_worker.engine.parallel import WHOLE, Grid, shard_of
from distserve_worker.weights.reading import read_config

MB = 10**6


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 200 MB in BF16, in one file."""
    folder = tmp_path_factory.mktemp("large")
    LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=16000,
    ).save_pretrained(folder)
    shapes = all_shapes(read_config(folder))
    save_file(
        {name: torch.randn(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}, folder / "model.safetensors"
    )
    assert (folder / "model.safetensors").stat().st_size > 200 * MB
    return folder


def _loaded(path: Path, dtype: str, tp: int, rank: int, small: Path) -> dict[str, Any]:
    """By how many bytes a process grows that loads this, and how many of them are weights."""
    arguments = [str(argument) for argument in (path, dtype, tp, rank, small)]
    command = [sys.executable, distserve_testing.loading_peak.__file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


@pytest.mark.parametrize(("dtype", "tp", "rank"), [("FP32", 1, 0), ("BF16", 2, 1), ("INT8", 1, 0)])
def test_the_peak_is_at_most_a_fifth_above_the_weights(
    large: Path, tiny: TinyLlama, dtype: str, tp: int, rank: int
) -> None:
    measured = _loaded(large, dtype, tp, rank, tiny.folder)
    assert 0.95 * measured["weights"] < measured["grown"] < 1.2 * measured["weights"]


def test_the_peak_of_a_gguf_file_too(smollm2_path: Path, tiny: TinyLlama) -> None:
    measured = _loaded(smollm2_path, "BF16", 1, 0, tiny.folder)
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
