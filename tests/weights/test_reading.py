"""Model configurations out of GGUF metadata and Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distserve_testing.models import LLAMA_METADATA, write_gguf
from transformers import LlamaConfig

from distserve_worker.weights.config import Activation, Architecture
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.families.rotary import RotaryConfig
from distserve_worker.weights.reading import read_config
from distserve_worker.weights.rope_scaling import Rope, RopeBase, scaled_rope

HUGGINGFACE: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 10,
    "rms_norm_eps": 0.5,
    "max_position_embeddings": 128,
}

YARN: dict[str, Any] = {"type": "yarn", "factor": 4.0, "original_context_length": 64}


def _scaling(stated: dict[str, Any]) -> dict[str, Any]:
    return {f"rope.scaling.{key}": value for key, value in stated.items()}


def _gguf(folder: Path, **changes: Any) -> RotaryConfig:
    metadata = {**LLAMA_METADATA, **{f"llama.{key}": value for key, value in changes.items()}}
    return _read(write_gguf(folder / "model.gguf", metadata))


def _folder(folder: Path, **changes: Any) -> RotaryConfig:
    fields = {key: value for key, value in {**HUGGINGFACE, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(fields))
    return _read(folder)


def _read(path: Path) -> RotaryConfig:
    config = read_config(path)
    assert isinstance(config, RotaryConfig)
    return config


def test_smollm2(smollm2_path: Path) -> None:
    assert read_config(smollm2_path) == RotaryConfig(
        architecture=Architecture.LLAMA,
        layers=30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        ffn=1536,
        vocab=49152,
        max_positions=8192,
        norm_eps=float(np.float32(1e-5)),
        activation=Activation.SILU,
        tied_embeddings=True,
        eos_token_ids=frozenset({2}),
        rope=Rope(theta=100000.0),
        windows=(None,) * 30,
    )


def test_both_formats_describe_the_same_model_alike(tmp_path: Path) -> None:
    from_gguf = read_config(
        write_gguf(
            tmp_path / "model.gguf",
            {**LLAMA_METADATA, "tokenizer.ggml.eos_token_id": 7},
            {"output.weight": np.ones((10, 32), dtype=np.float32)},
        )
    )
    assert _folder(tmp_path, num_key_value_heads=2, eos_token_id=7) == from_gguf


def test_what_transformers_saves_is_read(tmp_path: Path) -> None:
    LlamaConfig(num_key_value_heads=8, rope_parameters={"rope_type": "default", "rope_theta": 12345.0}).save_pretrained(
        tmp_path
    )
    config = _read(tmp_path)
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (32, 32, 8, 128)
    assert config.rope == Rope(12345.0)


def test_nothing_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"absent\.gguf: no such file or folder"):
        read_config(tmp_path / "absent.gguf")


def test_a_folder_without_config_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_attention_heads", 0, "heads is 0"),
        ("num_hidden_layers", -1, "layers is -1"),
        ("rms_norm_eps", 0.0, "norm_eps is 0.0"),
        ("rope_theta", float("nan"), "rope_theta is nan"),
        ("num_key_value_heads", 3, "4 heads cannot share 3 key/value heads"),
        ("head_dim", 7, "head_dim is 7"),
        ("rope_parameters", {"rope_type": "linear", "factor": -1.0}, "factor is -1.0, it must be"),
    ],
)
def test_numbers_that_no_model_can_have_are_named(tmp_path: Path, field: str, value: float, words: str) -> None:
    with pytest.raises(ModelInvalid, match=words):
        _folder(tmp_path, **{field: value})


class TestGguf:
    def test_an_unknown_architecture_is_refused_with_the_known_ones(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "model.gguf", architecture="mamba")
        with pytest.raises(ModelInvalid, match=r"architecture mamba is not known \(known: llama\)"):
            read_config(path)

    @pytest.mark.parametrize("key", sorted(set(LLAMA_METADATA) - {"llama.attention.head_count_kv"}))
    def test_a_missing_key_is_named(self, tmp_path: Path, key: str) -> None:
        metadata = {name: value for name, value in LLAMA_METADATA.items() if name != key}
        with pytest.raises(ModelInvalid, match=key.replace(".", r"\.")):
            read_config(write_gguf(tmp_path / "model.gguf", metadata))

    def test_a_key_of_the_wrong_type_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match=r"no number under llama\.block_count"):
            _gguf(tmp_path, block_count="two")

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.5])
    def test_a_value_that_is_no_whole_number_is_refused(self, tmp_path: Path, value: float) -> None:
        with pytest.raises(
            ModelInvalid, match=rf"model\.gguf: llama\.block_count is {value}, it must be a whole number"
        ):
            _gguf(tmp_path, block_count=value)

    def test_the_vocabulary_is_counted_when_its_size_is_not_stated(self, tmp_path: Path) -> None:
        metadata = {key: value for key, value in LLAMA_METADATA.items() if key != "llama.vocab_size"}
        tokens = {"tokenizer.ggml.tokens": ["a", "b", "c"]}
        assert read_config(write_gguf(tmp_path / "model.gguf", metadata | tokens)).vocab == 3

    def test_every_kind_of_end_token_counts(self, tmp_path: Path) -> None:
        ends = {"tokenizer.ggml.eos_token_id": 4, "tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 6}
        config = read_config(write_gguf(tmp_path / "model.gguf", {**LLAMA_METADATA, **ends}))
        assert config.eos_token_ids == {4, 5, 6}

    def test_stored_rope_factors_are_divisors(self, tmp_path: Path) -> None:
        factors = {"rope_freqs.weight": np.array([1.0, 2.0, 4.0, 8.0], dtype=np.float32)}
        config = _read(write_gguf(tmp_path / "model.gguf", tensors=factors))
        assert config.rope.divisors == (1.0, 2.0, 4.0, 8.0)

    def test_cut_rope_factors_are_named(self, tmp_path: Path) -> None:
        factors = {"rope_freqs.weight": np.ones(4, dtype=np.float32)}
        path = write_gguf(tmp_path / "model.gguf", tensors=factors)
        path.write_bytes(path.read_bytes()[:-24])
        with pytest.raises(ModelInvalid, match=r"ends inside tensor rope_freqs\.weight"):
            read_config(path)

    def test_rope_factors_of_another_format_are_refused(self, tmp_path: Path) -> None:
        factors = {"rope_freqs.weight": np.ones(4, dtype=np.float16)}
        with pytest.raises(ModelInvalid, match=r"rope_freqs\.weight is not FP32"):
            read_config(write_gguf(tmp_path / "model.gguf", tensors=factors))

    def test_rope_factors_must_match_the_heads(self, tmp_path: Path) -> None:
        factors = {"rope_freqs.weight": np.ones(3, dtype=np.float32)}
        with pytest.raises(ModelInvalid, match="3 rope factors for a head_dim of 8"):
            read_config(write_gguf(tmp_path / "model.gguf", tensors=factors))

    def test_linear_scaling_divides_every_frequency(self, tmp_path: Path) -> None:
        config = _gguf(tmp_path, **{"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
        assert config.rope.divisors == (4.0,) * 4

    def test_yarn_scaling_is_that_of_hugging_face(self, tmp_path: Path) -> None:
        config = _gguf(tmp_path, **_scaling(YARN))
        scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
        assert config.rope == scaled_rope(scaling, RopeBase(10000.0, 8, 128), "here")

    def test_scaling_needs_its_factor(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match=r"no number under llama\.rope\.scaling\.factor"):
            _gguf(tmp_path, **{"rope.scaling.type": "linear"})

    @pytest.mark.parametrize(
        "stated",
        [{"type": "none"}, {"type": "none", "factor": 4.0}, {"factor": 0.0}],
        ids=str,
    )
    def test_no_scaling_may_be_said_aloud(self, tmp_path: Path, stated: dict[str, Any]) -> None:
        assert _gguf(tmp_path, **_scaling(stated)).rope == Rope(10000.0)

    @pytest.mark.parametrize(
        "stated",
        [
            {"rope.scaling.factor": 4.0},
            {"rope.scale_linear": 4.0},
            {"rope.scaling.type": "linear", "rope.scale_linear": 4.0},
            {"rope.scaling.factor": 4.0, "rope.scale_linear": 2.0},
        ],
        ids=str,
    )
    def test_a_factor_without_a_type_is_linear_also_under_its_former_name(
        self, tmp_path: Path, stated: dict[str, Any]
    ) -> None:
        """As llama.cpp reads it."""
        assert _gguf(tmp_path, **stated).rope.divisors == (4.0,) * 4

    def test_the_range_of_yarn_is_that_of_hugging_face(self, tmp_path: Path) -> None:
        stated = {**YARN, "yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0}
        scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
        expected = scaled_rope(scaling | {"beta_fast": 16.0, "beta_slow": 2.0}, RopeBase(10000.0, 8, 128), "here")
        assert _gguf(tmp_path, **_scaling(stated)).rope == expected
        assert expected != scaled_rope(scaling, RopeBase(10000.0, 8, 128), "here")

    @pytest.mark.parametrize("stated", [{}, {"factor": 4.0}, YARN], ids=["without", "linear", "yarn"])
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("attn_factor", 2.0),
            ("yarn_attn_factor", 2.0),
            ("yarn_ext_factor", 0.5),
            ("yarn_log_multiplier", 0.1),
            ("alpha", 1000.0),
            ("yarn_something", 1.0),
        ],
    )
    def test_a_scaling_that_is_not_computed_is_named(
        self, tmp_path: Path, stated: dict[str, Any], name: str, value: float
    ) -> None:
        with pytest.raises(ModelInvalid, match=rf"model\.gguf: llama\.rope\.scaling\.{name} is .+: there must be "):
            _gguf(tmp_path, **_scaling({**stated, name: value}))

    def test_scaling_that_computes_nothing_may_be_said_aloud(self, tmp_path: Path) -> None:
        idle = {"attn_factor": 1.0, "yarn_ext_factor": 1.0, "yarn_attn_factor": 1.0, "yarn_log_multiplier": 0.0}
        bare, stated = tmp_path / "bare", tmp_path / "stated"
        bare.mkdir()
        stated.mkdir()
        assert _gguf(stated, **_scaling({**YARN, **idle, "finetuned": True})) == _gguf(bare, **_scaling(YARN))

    @pytest.mark.parametrize("kind", ["longrope", "default", 1])
    def test_an_unknown_scaling_is_named(self, tmp_path: Path, kind: object) -> None:
        words = rf"llama\.rope\.scaling\.type {kind!r} is not known \(known: none, linear, yarn\)"
        with pytest.raises(ModelInvalid, match=words):
            _gguf(tmp_path, **_scaling({"type": kind, "factor": 4.0}))

    def test_scaling_beside_stored_factors_is_named(self, tmp_path: Path) -> None:
        factors = {"rope_freqs.weight": np.ones(4, dtype=np.float32)}
        metadata = {**LLAMA_METADATA, "llama.rope.scaling.factor": 4.0}
        with pytest.raises(
            ModelInvalid, match=r"rope_freqs\.weight beside llama\.rope\.scaling\.\*: there must be one"
        ):
            read_config(write_gguf(tmp_path / "model.gguf", metadata, factors))

    def test_heads_of_which_a_part_is_turned_are_named(self, tmp_path: Path) -> None:
        assert _gguf(tmp_path, **{"rope.dimension_count": 8}).rope == Rope(10000.0)
        with pytest.raises(ModelInvalid, match=r"rope\.dimension_count is 4, it must be the size of a head, 8"):
            _gguf(tmp_path, **{"rope.dimension_count": 4})


class TestHuggingFace:
    @pytest.mark.parametrize("name", ["mamba", None])
    def test_an_unknown_architecture_is_refused_with_the_known_ones(self, tmp_path: Path, name: str | None) -> None:
        known = r"is not known \(known: gpt2, llama, mistral, opt, qwen2, qwen3\)"
        with pytest.raises(ModelInvalid, match=rf"architecture .*{name or 'no model_type'}.* {known}"):
            _folder(tmp_path, model_type=name)

    @pytest.mark.parametrize("field", sorted(set(HUGGINGFACE) - {"model_type", "rms_norm_eps"}))
    def test_a_missing_field_is_named(self, tmp_path: Path, field: str) -> None:
        with pytest.raises(ModelInvalid, match=f"the field {field} is missing"):
            _folder(tmp_path, **{field: None})

    @pytest.mark.parametrize(
        ("field", "value", "wanted"),
        [
            ("hidden_size", "wide", "a whole number"),
            ("hidden_size", 32.5, "a whole number"),
            ("hidden_size", True, "a whole number"),
            ("hidden_size", 2**70, "a whole number from 1 to 1048576"),
            ("rms_norm_eps", "small", "a number"),
            ("rope_theta", 10**400, "a number"),
            ("tie_word_embeddings", "no", "true or false"),
            ("hidden_act", 1, "a string"),
            ("rope_scaling", [2.0], "an object"),
            ("eos_token_id", ["</s>"], "a token id or a list of them"),
        ],
    )
    def test_a_field_of_the_wrong_type_is_refused(self, tmp_path: Path, field: str, value: Any, wanted: str) -> None:
        with pytest.raises(ModelInvalid, match=rf"config\.json: the field {field} is .*, it must be {wanted}"):
            _folder(tmp_path, **{field: value})

    @pytest.mark.parametrize("content", ["{", "[1]", "[" * 100_000])
    def test_broken_json_is_refused_by_name(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ModelInvalid, match=r"config\.json: not (a )?JSON"):
            read_config(tmp_path)

    def test_an_unknown_activation_is_refused_with_the_known_ones(self, tmp_path: Path) -> None:
        known = "gelu, gelu_new, gelu_pytorch_tanh, relu, silu"
        with pytest.raises(ModelInvalid, match=rf"hidden_act mish is not known \(known: {known}\)"):
            _folder(tmp_path, hidden_act="mish")

    def test_end_tokens_of_both_files_count(self, tmp_path: Path) -> None:
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
        assert _folder(tmp_path, eos_token_id=4).eos_token_ids == {4, 5, 6}

    def test_earlier_versions_of_transformers_wrote_rope_at_the_top(self, tmp_path: Path) -> None:
        config = _folder(tmp_path, rope_theta=777.0, rope_scaling={"type": "linear", "factor": 2.0})
        assert config.rope == Rope(777.0, (2.0,) * 4)

    def test_an_unknown_rope_scaling_is_refused_by_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match=r"config\.json: rope scaling dynamic is not known"):
            _folder(tmp_path, rope_scaling={"rope_type": "dynamic", "factor": 2.0})

    @pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
    def test_a_share_of_heads_is_refused_next_to_a_scaling_too(self, tmp_path: Path, kind: str) -> None:
        with pytest.raises(ModelInvalid, match=r"config\.json: a partial_rotary_factor of 0\.5 is not known"):
            _folder(tmp_path, rope_scaling={"type": kind, "factor": 2.0}, partial_rotary_factor=0.5)

    def test_a_trained_length_next_to_a_scaling_must_be_a_number(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match="the field original_max_position_embeddings is 'long', it must be"):
            _folder(tmp_path, rope_scaling={"type": "yarn", "factor": 2.0}, original_max_position_embeddings="long")

    def test_quantized_weights_are_refused_by_their_method(self, tmp_path: Path) -> None:
        with pytest.raises(ModelInvalid, match=r"weights are quantized \(gptq\), only plain ones"):
            _folder(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
