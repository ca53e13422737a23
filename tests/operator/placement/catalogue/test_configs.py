"""Models by their config.json."""

import math
from dataclasses import replace
from typing import Any

import pytest

from distserve_operator.placement.catalogue.configs import model_from_config
from distserve_operator.placement.catalogue.errors import UnsupportedConfigError
from distserve_operator.placement.catalogue.models import model_shape

OPT: dict[str, Any] = {
    "model_type": "opt",
    "_name_or_path": "OPT-13B",
    "hidden_size": 5120,
    "ffn_dim": 20480,
    "num_attention_heads": 40,
    "num_hidden_layers": 40,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "_name_or_path": "GPT2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "_name_or_path": "Llama-3.1-8B",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "_name_or_path": "Qwen3-4B",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


@pytest.mark.parametrize("config", [OPT, GPT2, LLAMA, QWEN3])
def test_a_configuration_gives_the_same_model_as_the_catalogue(config: dict[str, Any]) -> None:
    assert model_from_config(config) == model_shape(config["_name_or_path"])


@pytest.mark.parametrize("kind", ["mistral", "qwen2"])
def test_relatives_of_llama_are_read_alike(kind: str) -> None:
    assert model_from_config(LLAMA | {"model_type": kind}) == model_from_config(LLAMA)


def test_without_kv_heads_every_head_has_its_own() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert model_from_config(config).kv_heads == 32


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}


@pytest.mark.parametrize(
    ("kind", "kv_heads", "head_dim"), [("llama", 32, 80), ("mistral", 8, 80), ("qwen2", 32, 80), ("qwen3", 32, 128)]
)
def test_what_is_absent_is_what_transformers_takes_it_for(kind: str, kv_heads: int, head_dim: int) -> None:
    config = without(QWEN3, "num_key_value_heads", "head_dim") | {"model_type": kind}
    model = model_from_config(config)
    assert (model.kv_heads, model.head_dim) == (kv_heads, head_dim)


def test_heads_of_qwen3_need_not_share_out_the_hidden_size() -> None:
    assert model_from_config(without(QWEN3, "head_dim") | {"hidden_size": 1000}).head_dim == 128


def test_usual_kv_heads_that_do_not_go_with_the_heads_are_named() -> None:
    config = without(LLAMA, "num_key_value_heads") | {"model_type": "mistral", "num_attention_heads": 4}
    message = "has no num_key_value_heads, which means 8: expected a divisor of the 4 attention heads"
    with pytest.raises(UnsupportedConfigError, match=message):
        model_from_config(config)


def test_null_kv_heads_are_as_many_as_heads() -> None:
    assert model_from_config(LLAMA | {"model_type": "mistral", "num_key_value_heads": None}).kv_heads == 32


def test_name_and_weight_type_can_be_given() -> None:
    model = model_from_config(LLAMA, name="mine", weight_type="INT8")
    assert model == replace(model_shape("Llama-3.1-8B", "INT8"), name="mine")


def test_another_architecture_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnsupportedConfigError, match="model_type 'mixtral'; known are opt, gpt2, llama, mistral"):
        model_from_config(LLAMA | {"model_type": "mixtral"})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(UnsupportedConfigError, match=r"Llama-3\.1-8B has no field intermediate_size: give"):
        model_from_config({key: value for key, value in LLAMA.items() if key != "intermediate_size"})


@pytest.mark.parametrize("value", ["many", "40", [1], 0, -3, 40.5, 40.0, True, math.inf, math.nan, 10**400])
def test_a_field_of_the_wrong_kind_is_refused(value: object) -> None:
    with pytest.raises(UnsupportedConfigError, match=r"has num_attention_heads .{1,62}: expected a whole number"):
        model_from_config(OPT | {"num_attention_heads": value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_size", math.inf, "has hidden_size inf: expected a whole number from 1 to 10,000,000"),
        ("hidden_size", 10**400, "has hidden_size 1000+: expected"),
        ("hidden_size", None, "has no field hidden_size"),
        ("num_attention_heads", 5000, "has num_attention_heads 5000: expected a whole number from 1 to 4,096"),
        ("hidden_size", 16, "has num_attention_heads 32: expected a divisor of the hidden_size 16, or a head_dim"),
        ("num_key_value_heads", -8, "has num_key_value_heads -8: expected a whole number from 1 to 32"),
        ("num_key_value_heads", 64, "has num_key_value_heads 64: expected a whole number from 1 to 32"),
        ("num_key_value_heads", 5, "has num_key_value_heads 5: expected a divisor of the 32 attention heads"),
        ("head_dim", -128, "has head_dim -128: expected"),
        ("head_dim", "0", "has head_dim '0': expected"),
        ("tie_word_embeddings", "false", "has tie_word_embeddings 'false': expected true or false"),
        ("num_local_experts", 8, "has num_local_experts 8: mixtures of experts are not planned, give a dense model"),
        ("num_experts", 128, "has num_experts 128: mixtures of experts"),
    ],
)
def test_numbers_that_no_dense_model_has_are_named(field: str, value: object, message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        model_from_config(LLAMA | {field: value})


@pytest.mark.parametrize("absent", ["head_dim", "num_local_experts", "tie_word_embeddings"])
def test_null_counts_as_absent(absent: str) -> None:
    assert model_from_config(LLAMA | {absent: None}) == model_from_config(LLAMA)
