"""The weights digest tells models apart and is blind to how they are stored."""

from pathlib import Path
from typing import Any

import pytest
from distserve_testing.models import write_tiny_llama
from safetensors.torch import load_file, save_file

from distserve_worker.engine.loading.digest import weights_digest
from distserve_worker.engine.loading.safetensors_source import SafetensorsSource
from distserve_worker.weights.reading import read_config


def _digest(folder: Path, dtype: str = "FP32") -> str:
    return weights_digest(read_config(folder), SafetensorsSource(folder).stored.values(), dtype)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path)
    return tmp_path


def test_the_same_weights_in_shards_have_the_same_digest(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sharded = tmp_path_factory.mktemp("sharded")
    write_tiny_llama(sharded, max_shard_size="100KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert _digest(sharded) == _digest(folder)


def test_another_dtype_has_another_digest(folder: Path) -> None:
    assert _digest(folder, "FP32") != _digest(folder, "BF16")


@pytest.mark.parametrize("changes", [{"rms_norm_eps": 1e-3}, {"rope_parameters": {"rope_theta": 5.0}}])
def test_another_constant_has_another_digest(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    other = tmp_path_factory.mktemp("other")
    write_tiny_llama(other, **changes)
    assert _digest(other) != _digest(folder)


def test_a_fine_tuned_tensor_changes_the_digest(folder: Path) -> None:
    before = _digest(folder)
    weights = load_file(folder / "model.safetensors")
    for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"):
        changed = dict(weights)
        changed[name] = weights[name].clone()
        changed[name][len(weights[name]) // 2 :] += 1e-3  # its first half stays
        save_file(changed, folder / "model.safetensors")
        assert _digest(folder) != before
    save_file(weights, folder / "model.safetensors")
    assert _digest(folder) == before
