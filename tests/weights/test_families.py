"""What each family states in config.json, in its own words."""

import json
from pathlib import Path
from typing import Any

import pytest
from distserve_testing.families import FAMILIES

from distserve_worker.weights.config import Activation, Architecture, ModelConfig
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.families.gpt2 import Gpt2Config
from distserve_worker.weights.families.opt import OptConfig
from distserve_worker.weights.families.registry import READERS
from distserve_worker.weights.families.rotary import RotaryConfig
from distserve_worker.weights.reading import read_config


def _read(folder: Path, family: str, **changes: Any) -> ModelConfig:
    """What is read of a configuration that transformers saved, with `changes`; "absent" takes a field out."""
    kind, fields = FAMILIES[family]
    kind(**fields).save_pretrained(folder)
    path = folder / "config.json"
    written = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in written.items() if value != "absent"}))
    return read_config(folder)


def _windows(folder: Path, family: str, **changes: Any) -> tuple[int | None, ...]:
    config = _read(folder, family, **changes)
    assert isinstance(config, RotaryConfig)
    return config.windows


def test_every_family_can_be_read() -> None:
    assert set(READERS) == set(Architecture) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_model_of_each_family(tmp_path: Path, family: str) -> None:
    config = _read(tmp_path, family)
    assert config.architecture == family
    assert (config.layers, config.hidden, config.heads, config.vocab) == (3, 48, 6, 211)
    assert config.head_dim == (16 if family == "qwen3" else 8)
    assert config.max_positions == 256


@pytest.mark.parametrize(
    ("family", "written"),
    [
        *((family, "absent") for family in ("llama", "mistral", "qwen2", "qwen3")),
        *((family, None) for family in ("llama", "qwen2", "qwen3")),
    ],
)
def test_key_value_heads_that_are_not_stated_are_as_many_as_for_transformers(
    tmp_path: Path, family: str, written: str | None
) -> None:
    """Left out is something else than null: a family's usual number."""
    config = _read(tmp_path, family, num_attention_heads=64, hidden_size=512, num_key_value_heads=written)
    kind, _ = FAMILIES[family]
    assert config.kv_heads == kind.from_pretrained(tmp_path).num_key_value_heads


class TestWindows:
    def test_mistral_without_a_word_about_it_has_one(self, tmp_path: Path) -> None:
        assert _windows(tmp_path, "mistral", sliding_window="absent") == (4096,) * 3

    def test_null_is_none(self, tmp_path: Path) -> None:
        assert _windows(tmp_path, "mistral", sliding_window=None) == (None,) * 3

    @pytest.mark.parametrize("window", [0, -5])
    def test_a_window_of_nothing_is_refused(self, tmp_path: Path, window: int) -> None:
        with pytest.raises(ModelInvalid, match=f"sliding_window is {window}, it must be a whole number from 1"):
            _windows(tmp_path, "mistral", sliding_window=window)

    def test_mistral_may_name_the_layers_that_have_one(self, tmp_path: Path) -> None:
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        assert _windows(tmp_path, "mistral", sliding_window=9, layer_types=kinds) == (9, None, 9)

    @pytest.mark.parametrize("family", ["qwen2", "qwen3"])
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"use_sliding_window": False, "sliding_window": 9}, "use_sliding_window is false"),
            ({"use_sliding_window": True, "sliding_window": None}, "sliding_window is null"),
        ],
    )
    def test_layers_cannot_slide_without_a_window(
        self, tmp_path: Path, family: str, fields: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(ModelInvalid, match=f"layer_types has sliding_attention, but {words}"):
            _windows(tmp_path, family, layer_types=["full_attention"] + ["sliding_attention"] * 2, **fields)

    def test_mistral_cannot_slide_without_a_window_either(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match="layer_types has sliding_attention, but sliding_window is null"):
            _windows(tmp_path, "mistral", layer_types=["sliding_attention"] * 3, sliding_window=None)

    @pytest.mark.parametrize("family", ["qwen2", "qwen3"])
    def test_a_qwen_of_no_window_has_none(self, tmp_path: Path, family: str) -> None:
        fields = {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0, "layer_types": "absent"}
        assert _windows(tmp_path, family, **fields) == (None,) * 3

    @pytest.mark.parametrize("family", ["qwen2", "qwen3"])
    def test_qwen_says_from_which_layer_on(self, tmp_path: Path, family: str) -> None:
        fields = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2, "layer_types": "absent"}
        assert _windows(tmp_path, family, **fields) == (None, None, 9)
        assert _windows(tmp_path, family, **{**fields, "use_sliding_window": False}) == (None,) * 3

    @pytest.mark.parametrize(
        "kinds", [["full_attention"], ["full_attention", "sliding_attention", "chunked_attention"]]
    )
    def test_kinds_of_layers_must_be_known_and_complete(self, tmp_path: Path, kinds: list[str]) -> None:
        with pytest.raises(ModelInvalid, match="layer_types must be full_attention or sliding_attention for each of 3"):
            _windows(tmp_path, "qwen2", use_sliding_window=True, sliding_window=9, layer_types=kinds)


class TestGpt2:
    def test_defaults(self, tmp_path: Path) -> None:
        config = _read(tmp_path, "gpt2")
        assert isinstance(config, Gpt2Config)
        assert (config.ffn, config.activation, config.tied_embeddings) == (192, Activation.GELU_NEW, True)
        assert config.scaled_by_head
        assert not config.scaled_by_layer

    def test_heads_must_share_the_hidden_size(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match="5 heads do not divide the hidden size 48 evenly"):
            _read(tmp_path, "gpt2", n_head=5)

    def test_cross_attention_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match="add_cross_attention is true"):
            _read(tmp_path, "gpt2", add_cross_attention=True)


class TestOpt:
    def test_defaults(self, tmp_path: Path) -> None:
        config = _read(tmp_path, "opt", word_embed_proj_dim="absent", enable_bias="absent")
        assert isinstance(config, OptConfig)
        assert (config.ffn, config.embedding_width, config.activation) == (80, 48, Activation.RELU)
        assert config.norm_first
        assert config.final_norm
        assert config.bias
        assert config.learned_norms

    def test_the_variant_of_350_million_parameters_has_no_final_norm(self, tmp_path: Path) -> None:
        config = _read(tmp_path, "opt", do_layer_norm_before=False, word_embed_proj_dim=24)
        assert isinstance(config, OptConfig)
        assert not config.final_norm
        assert config.embedding_width == 24

    def test_embeddings_of_no_width_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match="word_embed_proj_dim is 0"):
            _read(tmp_path, "opt", word_embed_proj_dim=0)


def test_qwen3_has_heads_of_128_where_it_does_not_say(tmp_path: Path) -> None:
    assert _read(tmp_path, "qwen3", head_dim="absent").head_dim == 128
