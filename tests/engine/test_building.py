"""Engines from a few numbers: what they describe, and what does not fit."""

from typing import Any

import pytest
import torch
from distserve_testing.engines import EngineMaker
from distserve_testing.models import TinyLlama

from distserve_worker.engine.blueprint import EngineConfig, ModelDoesNotFit
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.interface import KvLayout
from distserve_worker.engine.models.registry import MODELS
from distserve_worker.weights.config import Architecture

BLOCK_BYTES = 3 * 2 * 2 * 16 * 8 * 4


def test_both_roles_describe_one_model(make_engine: EngineMaker) -> None:
    prefill, decode = make_engine("prefill").description, make_engine("decode").description
    assert prefill == decode
    assert prefill.layout == KvLayout(layers=3, kv_heads=2, head_dim=8, block_tokens=16, dtype="FP32")
    assert (prefill.max_model_length, prefill.max_request_tokens) == (256, 1024)


def test_half_the_bytes_a_value_make_twice_the_blocks(make_engine: EngineMaker) -> None:
    engine = make_engine("decode", blocks=10, dtype="BF16")
    assert engine.load().total_blocks == 20
    assert engine.description.layout.dtype == "BF16"
    assert engine.description.weights_digest != make_engine("decode").description.weights_digest


def test_memory_below_the_models_length_shortens_what_is_promised(make_engine: EngineMaker) -> None:
    description = make_engine("decode", blocks=3).description
    assert (description.max_model_length, description.max_request_tokens) == (48, 48)


@pytest.mark.parametrize(
    ("memory", "length", "words"),
    [
        (
            2 * BLOCK_BYTES,
            33,
            f"one request of 33 tokens needs {3 * BLOCK_BYTES} bytes of KV memory, {2 * BLOCK_BYTES} are set aside",
        ),
        (BLOCK_BYTES - 1, None, f"one request of 16 tokens needs {BLOCK_BYTES} bytes"),
    ],
)
def test_memory_for_less_than_one_request_is_refused_with_the_numbers(
    tiny: TinyLlama, memory: int, length: int | None, words: str
) -> None:
    with pytest.raises(ModelDoesNotFit, match=words):
        build_engine(EngineConfig("decode", tiny.folder, memory, max_model_length=length))


def test_a_length_that_the_model_does_not_have_is_refused(make_engine: EngineMaker) -> None:
    with pytest.raises(ValueError, match="max_model_length is 257, the model has 256 positions"):
        make_engine("decode", max_model_length=257)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": "FP64"}, "dtype is FP64, it must be one of FP32, BF16"),
        ({"max_model_length": 0}, "max_model_length is 0, it must be at least 1"),
        ({"max_batch_tokens": 0}, "max_batch_tokens is 0"),
        ({"max_running": -1}, "max_running is -1"),
        ({"max_waiting": 0}, "max_waiting is 0"),
    ],
)
def test_a_field_that_makes_no_sense_is_named(tiny: TinyLlama, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EngineConfig("decode", tiny.folder, BLOCK_BYTES, **fields)


def test_every_architecture_that_is_read_can_be_run() -> None:
    assert set(MODELS) == set(Architecture)


def test_every_dtype_is_a_float_of_torch() -> None:
    assert all(dtype.is_floating_point for dtype in DTYPES.values())
    assert DTYPES["FP32"] is torch.float32
