"""Models by name."""

import pytest

from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.catalogue.models import model_names, model_shape
from distserve_operator.placement.model import WeightType


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("OPT-125M", 0.125),
        ("OPT-13B", 12.85),
        ("OPT-66B", 65.7),
        ("OPT-175B", 174.6),
        ("GPT2", 0.124),
        ("GPT2-XL", 1.558),
        ("Llama-2-7B", 6.738),
        ("Llama-2-13B", 13.016),
        ("Llama-2-70B", 68.977),
        ("TinyLlama-1.1B", 1.1),
        ("Llama-3-8B", 8.03),
        ("Llama-3.1-70B", 70.55),
        ("Llama-3.1-405B", 405.85),
        ("Llama-3.2-1B", 1.236),
        ("Llama-3.2-3B", 3.213),
        ("Qwen2-0.5B", 0.494),
        ("Qwen2.5-1.5B", 1.544),
        ("Qwen2.5-3B", 3.086),
        ("Qwen2.5-7B", 7.616),
        ("Qwen2.5-14B", 14.77),
        ("Qwen2.5-32B", 32.76),
        ("Qwen2.5-72B", 72.71),
        ("Qwen3-0.6B", 0.596),
        ("Qwen3-4B", 4.022),
        ("Qwen3-8B", 8.19),
        ("Qwen3-14B", 14.77),
        ("Qwen3-32B", 32.76),
        ("Mistral-7B", 7.248),
        ("SmolLM2-135M", 0.1345),
        ("SmolLM2-360M", 0.3618),
        ("SmolLM2-1.7B", 1.711),
    ],
)
def test_parameters_are_as_published(name: str, billions: float) -> None:
    assert model_shape(name).parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_every_model_is_found_by_its_name_in_any_case() -> None:
    for name in model_names():
        assert model_shape(name.lower()).name == name
        assert model_shape(name.upper()).name == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("facebook/opt-13b", "OPT-13B"),
        ("openai-community/gpt2-medium", "GPT2-Medium"),
        ("gpt-2", "GPT2"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "Qwen2.5-0.5B"),
        ("qwen2.5-7b-instruct-q4_k_m.gguf", "Qwen2.5-7B"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "Mistral-7B-v0.1"),
        ("Mistral-7B-v0.3", "Mistral-7B-v0.3"),
    ],
)
def test_names_as_hubs_and_files_write_them_are_understood(written: str, name: str) -> None:
    assert model_shape(written).name == name


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownModelError) as caught:
        model_shape("facebook/opt-12b")
    assert caught.value.nearest[0] == "OPT-13B"
    assert "'facebook/opt-12b' is not known: did you mean OPT-13B or" in str(caught.value)


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(UnknownModelError, match=r"known are OPT-125M, .*SmolLM2-1\.7B") as caught:
        model_shape("zzz")
    assert caught.value.nearest == ()


def test_the_weight_type_is_the_published_one_unless_another_is_asked_for() -> None:
    assert model_shape("OPT-13B").weight_type == "FP16"
    assert model_shape("Llama-3-8B").weight_type == "BF16"
    assert model_shape("OPT-13B", "INT8").weight_type == "INT8"


def test_kv_has_16_bits_except_in_fp32() -> None:
    kinds: tuple[WeightType, ...] = ("FP32", "FP16", "BF16", "INT8")
    assert [model_shape("OPT-13B", kind).kv_bytes for kind in kinds] == [4, 2, 2, 2]
