"""Models by the URI of their weights."""

import pytest

from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.catalogue.uris import model_of_uri


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hf://facebook/opt-66b@main", "OPT-66B"),
        ("hf://HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M"),
        ("pvc://models/smollm2-135m-instruct.gguf", "SmolLM2-135M"),
        ("pvc://models/hub/Qwen2.5-7B-Instruct/", "Qwen2.5-7B"),
        ("pvc://models/llama-3.1-8b/snapshots/0e9e39f2", "Llama-3.1-8B"),
        ("file:///weights/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("file:///weights/qwen3-8b-00001-of-00002.gguf", "Qwen3-8B"),
    ],
)
def test_the_model_is_read_off_the_uri(uri: str, name: str) -> None:
    assert model_of_uri(uri).name == name


def test_the_weight_type_can_be_given() -> None:
    assert model_of_uri("hf://facebook/opt-66b", "INT8").weight_type == "INT8"


def test_the_claim_is_no_name_of_a_model() -> None:
    with pytest.raises(UnknownModelError, match="'weights' is not known"):
        model_of_uri("pvc://opt-13b/weights")


@pytest.mark.parametrize("uri", ["opt-13b", "s3://bucket/opt-13b", "hf://", "hf://acme/opt-12b@main", "file:///"])
def test_what_names_no_known_model_is_refused(uri: str) -> None:
    with pytest.raises(UnknownModelError):
        model_of_uri(uri)


def test_the_nearest_names_are_offered() -> None:
    with pytest.raises(UnknownModelError) as caught:
        model_of_uri("hf://acme/opt-12b@main")
    assert caught.value.nearest[0] == "OPT-13B"
