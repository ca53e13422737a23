"""Sampling parameters that an engine refuses: with the field, the value and what is allowed."""

import math
from typing import Any

import pytest

from distserve_worker.engine.interface import QueueFull, Refused, Sampling, TooLong, Work
from distserve_worker.engine.sampling.checks import check_sampling


def _work(**changes: Any) -> Work:
    leg = {name: changes.pop(name) for name in ("stop_token_ids", "max_tokens") if name in changes}
    return Work("r", prompt=(1, 2, 3), sampling=Sampling(**changes), **leg)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": -0.1}, "temperature is -0.1, it must be from 0 to 2"),
        ({"temperature": 2.1}, "temperature is 2.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_p": 0.0}, "top_p is 0.0, it must be greater than 0 and at most 1"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1, it must be 0"),
        ({"min_p": -0.1}, "min_p is -0.1, it must be from 0 to 1"),
        ({"min_p": math.nan}, "min_p is nan"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0, it must be from 0.01 to 100"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty is 1e-300"),
        ({"repetition_penalty": math.inf}, "repetition_penalty is inf"),
        ({"presence_penalty": 2.5}, "presence_penalty is 2.5, it must be from -2 to 2"),
        ({"frequency_penalty": -1e39}, "frequency_penalty is -1e"),
        ({"logit_bias": ((5, 101.0),)}, "logit_bias of token id 5 is 101.0, it must be from -100 to 100"),
        ({"logit_bias": ((5, math.nan),)}, "logit_bias of token id 5 is nan"),
        ({"logit_bias": ((100, 1.0),)}, "logit_bias names token id 100, the vocabulary has 100 tokens"),
        ({"logit_bias": ((1, 1.0),) * 1025}, "logit_bias holds 1025 tokens, at most 1024 are taken"),
        ({"logprobs": 21}, "logprobs is 21, it must be from 0 to 20"),
        ({"stop_token_ids": frozenset({100})}, "stop_token_ids names token id 100"),
        ({"stop_token_ids": frozenset(range(1025))}, "stop_token_ids holds 1025 tokens, at most 1024 are taken"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens is 5, it must be at most max_tokens, which is 4"),
        ({"min_tokens": 1, "stop_token_ids": frozenset(range(100))}, "each of the 100 tokens .* is a stop token"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words) as refusal:
        check_sampling(_work(**changes), vocabulary=100)
    assert not isinstance(refusal.value, QueueFull | TooLong)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 2.0, "top_p": 1.0, "min_p": 1.0, "seed": 2**64 - 1, "top_k": 10**9},
        {"repetition_penalty": 0.01, "presence_penalty": -2.0, "frequency_penalty": 2.0},
        {"temperature": 5e-324, "top_p": 5e-324, "min_p": 5e-324},
        {"logit_bias": ((0, -100.0), (99, 100.0)), "logprobs": 20, "min_tokens": 4, "max_tokens": 4},
    ],
)
def test_every_limit_itself_is_taken(changes: dict[str, Any]) -> None:
    check_sampling(_work(**changes), vocabulary=100)
