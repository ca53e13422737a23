"""The name under which a model is profiled is the one that plans look for."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from distserve_cli.planning.errors import BadInput
from distserve_cli.profiling.subject import Subject, identify

SMOLLM2: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def folder(path: Path, **changes: Any) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({**SMOLLM2, **changes}))
    return path


def test_a_known_gguf_file_has_its_name_in_the_catalogue(smollm2_path: Path) -> None:
    known = Subject("SmolLM2-135M", "SmolLM2-135M", "FP32")
    assert identify(str(smollm2_path), "FP32") == known
    assert identify(smollm2_path.as_uri(), "FP32") == known


def test_an_unknown_gguf_file_has_its_own(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    shutil.copy(smollm2_path, file)
    assert identify(str(file), "BF16") == Subject("mine", None, "BF16")


def test_a_known_folder_has_its_name_in_the_catalogue(tmp_path: Path) -> None:
    assert identify(str(folder(tmp_path / "SmolLM2-135M-Instruct")), "BF16").name == "SmolLM2-135M"


def test_a_folder_that_only_calls_itself_like_a_model_has_its_own(tmp_path: Path) -> None:
    path = folder(tmp_path / "SmolLM2-135M-Instruct", num_hidden_layers=12)
    assert identify(str(path), "FP32") == Subject("SmolLM2-135M-Instruct", str(path), "FP32")


def test_a_relative_path_is_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder(tmp_path / "mine"))
    assert identify(".", "FP32") == Subject("mine", str(tmp_path / "mine"), "FP32")


def test_a_model_that_workers_cannot_serve_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = folder(tmp_path / "mamba-130m", model_type="mamba")
    with pytest.raises(BadInput, match=rf"--model {path}: .*architecture mamba is not known .*; give a model that"):
        identify(str(path), "FP32")
