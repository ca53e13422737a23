"""Numbers that no model has are named by field, value and what is allowed, before anything is made of them."""

import json
import math
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from distserve_testing.families import FAMILIES
from distserve_testing.models import LLAMA_METADATA, write_gguf
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.limits import MOST
from distserve_worker.weights.reading import read_config

_ROTARY: Final = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
    "max_position_embeddings": "max_positions",
}
_WINDOWED: Final = _ROTARY | {"sliding_window": "max_positions"}
COUNTS: Final[Mapping[str, Mapping[str, str]]] = {
    "llama": _ROTARY,
    "mistral": _WINDOWED,
    "qwen2": _WINDOWED,
    "qwen3": _WINDOWED,
    "gpt2": {
        "n_layer": "layers",
        "n_embd": "hidden",
        "n_head": "heads",
        "n_inner": "ffn",
        "vocab_size": "vocab",
        "n_positions": "max_positions",
    },
    "opt": {
        "num_hidden_layers": "layers",
        "hidden_size": "hidden",
        "num_attention_heads": "heads",
        "ffn_dim": "ffn",
        "vocab_size": "vocab",
        "max_position_embeddings": "max_positions",
        "word_embed_proj_dim": "hidden",
    },
}
POSITIVE: Final = {
    "llama": "rms_norm_eps",
    "qwen3": "rope_theta",
    "mistral": "rope_theta",
    "gpt2": "layer_norm_epsilon",
}
GGUF_COUNTS: Final = {
    "block_count": "layers",
    "embedding_length": "hidden",
    "attention.head_count": "heads",
    "attention.head_count_kv": "kv_heads",
    "attention.key_length": "head_dim",
    "feed_forward_length": "ffn",
    "vocab_size": "vocab",
    "context_length": "max_positions",
}
_NO_NUMBERS: Final = (math.nan, math.inf, -math.inf)


@cache
def _saved(family: str) -> dict[str, Any]:
    """What transformers writes for a small model, sliding windows switched on."""
    kind, fields = FAMILIES[family]
    with TemporaryDirectory() as folder:
        kind(**fields).save_pretrained(folder)
        written: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text())
    written.pop("rope_parameters", None)
    written.pop("layer_types", None)
    return written | {"use_sliding_window": True, "max_window_layers": 1}


def _read(family: str, **changes: Any) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_saved(family) | changes))
        read_config(Path(folder))


@contextmanager
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@st.composite
def absurd_counts(draw: st.DrawFn, fields: Mapping[str, Mapping[str, str]]) -> tuple[str, str, Any]:
    """A family, one of its fields, and a value for it."""
    family = draw(st.sampled_from(sorted(fields)))
    field, what = draw(st.sampled_from(sorted(fields[family].items())))
    too_many = st.integers(MOST[what] + 1, 10**30)
    return family, field, draw(too_many | st.integers(-(10**30), 0) | st.floats() | st.sampled_from(_NO_NUMBERS))


@given(absurd_counts(COUNTS))
def test_a_count_that_no_model_has_is_named_with_what_is_allowed(case: tuple[str, str, Any]) -> None:
    family, field, value = case
    with _little_memory(), pytest.raises(ModelInvalid) as raised:
        _read(family, **{field: value})
    most = MOST[COUNTS[family][field]]
    assert f"config.json: the field {field} is {value!r:.80}, it must be a whole number from 1 to {most}" in str(
        raised.value
    )


@given(st.sampled_from(sorted(POSITIVE.items())), st.floats(max_value=0) | st.sampled_from(_NO_NUMBERS))
def test_a_number_that_must_be_positive_is_named(field: tuple[str, str], value: float) -> None:
    family, name = field
    with pytest.raises(ModelInvalid) as raised:
        _read(family, **{name: value})
    assert f"the field {name} is {value!r}, it must be a number greater than 0" in str(raised.value)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize("value", [-(2**31), -1, 10**9])
def test_windows_from_a_layer_that_no_model_has_are_named(family: str, value: int) -> None:
    with _little_memory(), pytest.raises(ModelInvalid, match=f"the field max_window_layers is {value}, it must be"):
        _read(family, max_window_layers=value)


@pytest.mark.parametrize("name", ["factor", "original_max_position_embeddings", "beta_fast"])
@pytest.mark.parametrize("value", [*_NO_NUMBERS, -4.0])
def test_a_number_of_rope_scaling_is_named(name: str, value: float) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, name: value}
    with pytest.raises(ModelInvalid, match=f"rope scaling: the field {name} is {value!r}, it must be"):
        _read("llama", rope_scaling=scaling)


@pytest.mark.parametrize(("key", "what"), GGUF_COUNTS.items())
def test_a_count_of_a_gguf_file_that_no_model_has_is_named(tmp_path: Path, key: str, what: str) -> None:
    for value in {0, min(MOST[what] + 1, 2**32 - 1), 2**32 - 1}:
        path = write_gguf(tmp_path / f"{value}.gguf", {**LLAMA_METADATA, f"llama.{key}": value})
        words = rf"llama\.{key.replace('.', '[.]')} is {value}, it must be a whole number from 1 to {MOST[what]}"
        with _little_memory(), pytest.raises(ModelInvalid, match=words):
            read_config(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_allowed_at_most_makes_no_large_objects(family: str) -> None:
    """The files are asked next what they really have."""
    layers = next(field for field, what in COUNTS[family].items() if what == "layers")
    vocab = next(field for field, what in COUNTS[family].items() if what == "vocab")
    with _little_memory():
        _read(family, **{layers: MOST["layers"], vocab: MOST["vocab"]})
