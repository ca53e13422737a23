"""Scaled rotary frequencies equal those of transformers."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from distserve_worker.weights.rope_scaling import rope_divisors

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("scaling", [LLAMA3, {"rope_type": "linear", "factor": 3.0}], ids=["llama3", "linear"])
def test_scaled_frequencies_equal_those_of_transformers(scaling: dict[str, Any]) -> None:
    parameters = {**scaling, "rope_theta": 500000.0}
    config = LlamaConfig(head_dim=128, rope_parameters=parameters, max_position_embeddings=131072)
    expected, _ = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    divisors = rope_divisors(scaling, 500000.0, 128, "here")
    unscaled = 1.0 / 500000.0 ** (torch.arange(0, 128, 2) / 128)
    assert divisors is not None
    torch.testing.assert_close(unscaled / torch.tensor(divisors), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("scaling", [None, {}, {"rope_type": "default", "rope_theta": 1.0}])
def test_no_scaling_gives_no_divisors(scaling: dict[str, Any] | None) -> None:
    assert rope_divisors(scaling, 10000.0, 64, "here") is None
