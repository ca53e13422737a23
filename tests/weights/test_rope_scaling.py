"""Scaled rotary frequencies equal those of transformers."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.rope_scaling import Rope, RopeBase, scaled_rope

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": LLAMA3,
    "llama3-without-trained-length": {key: LLAMA3[key] for key in LLAMA3 if not key.startswith("original")},
    "yarn": YARN,
    "yarn-of-another-range": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-with-a-stated-magnitude": {**YARN, "attention_factor": 1.5},
    "yarn-with-two-scales": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
    "yarn-without-rounding": {**YARN, "truncate": False},
    "yarn-that-shortens": {**YARN, "factor": 0.5},
    "yarn-factor-out-of-lengths": {**YARN, "factor": None},
}
BASE = RopeBase(theta=500000.0, head_dim=128, max_positions=131072)


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_frequencies_equal_those_of_transformers(name: str) -> None:
    scaling = SCALINGS[name]
    parameters = {**scaling, "rope_theta": BASE.theta}
    config = LlamaConfig(head_dim=128, rope_parameters=parameters, max_position_embeddings=BASE.max_positions)
    expected, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    rope = scaled_rope(scaling, BASE, "here")
    unscaled = 1.0 / BASE.theta ** (torch.arange(0, 128, 2) / 128)
    torch.testing.assert_close(unscaled / torch.tensor(rope.divisors), expected, rtol=2e-6, atol=0)
    assert rope.magnitude == pytest.approx(magnitude)


@pytest.mark.parametrize("scaling", [{}, {"rope_type": "default", "rope_theta": 1.0}, {"type": "default"}])
def test_no_scaling_gives_no_divisors(scaling: dict[str, Any]) -> None:
    assert scaled_rope(scaling, BASE, "here") == Rope(BASE.theta)


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, r"dynamic is not known \(known: default, linear, llama3, yarn\)"),
        ({"rope_type": "longrope"}, "longrope is not known"),
        ({"rope_type": ["linear"]}, "is not known"),
        ({"rope_type": "yarn"}, "yarn lacks the field 'factor'"),
        ({"rope_type": "linear", "factor": None}, "linear lacks the field 'factor'"),
        ({**LLAMA3, "low_freq_factor": None}, "llama3 lacks the field 'low_freq_factor'"),
        ({"rope_type": "llama3", **LLAMA3, "factor": 0.0}, "llama3 has a value that cannot be used"),
        ({"full_attention": {"rope_type": "default"}}, "of its own for full_attention is not known"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor of 0.5 is not known"),
    ],
)
def test_a_scaling_that_cannot_be_computed_is_refused(scaling: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelInvalid, match=words):
        scaled_rope(scaling, BASE, "here")


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "linear", "factor": "2.0"}, "factor is '2.0'"),
        ({"rope_type": "linear", "factor": 1e-300}, "factor is 1e-300"),
        ({"rope_type": "linear", "factor": 1e300}, r"factor is 1e\+300"),
        ({"rope_type": "linear", "factor": True}, "factor is True"),
        ({"rope_type": "linear", "factor": [2.0]}, r"factor is \[2\.0\]"),
        ({**LLAMA3, "high_freq_factor": "nan"}, "high_freq_factor is 'nan'"),
        ({**LLAMA3, "high_freq_factor": float("nan")}, "high_freq_factor is nan"),
        ({**YARN, "attention_factor": "inf"}, "attention_factor is 'inf'"),
        ({**YARN, "beta_fast": -1.0}, r"beta_fast is -1\.0"),
    ],
)
def test_what_is_no_number_of_a_sensible_size_is_refused(scaling: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelInvalid, match=rf"the field {words}, it must be a number from 1e-06 to 1e\+09"):
        scaled_rope(scaling, BASE, "here")
