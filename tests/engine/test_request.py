"""What an engine admits, and when a request ends."""

from dataclasses import replace

import pytest

from distserve_worker.engine.interface import (
    Description,
    FinishReason,
    KvLayout,
    KvShard,
    QueueFull,
    Refused,
    Sampling,
    TooLong,
    Work,
)
from distserve_worker.engine.request import admitted

DESCRIPTION = Description(
    KvLayout(1, 1, 2, 16, "FP32"), (KvShard(0, 1, 0, 1),), "digest", "FP32", max_model_length=20, max_request_tokens=32
)
WORK = Work("r", prompt=(1, 2, 3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ()}, "the prompt has no tokens"),
        ({"prompt": (1, 100)}, "token id 100 is not in the vocabulary of 100 tokens"),
        ({"output": (1, -1)}, "token id -1 is not in the vocabulary"),
        ({"max_tokens": 0}, "max_tokens is 0, and 0 output tokens exist already"),
        ({"output": (1, 2), "max_tokens": 2}, "max_tokens is 2, and 2 output tokens exist already"),
        ({"sampling": Sampling(temperature=-0.1)}, "temperature is -0.1"),
    ],
)
def test_work_that_makes_no_sense_is_refused_with_the_value(changes: dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match=words) as refusal:
        admitted(replace(WORK, **changes), DESCRIPTION, vocabulary=100)  # type: ignore[arg-type]
    assert not isinstance(refusal.value, QueueFull | TooLong)


@pytest.mark.parametrize(
    ("prompt", "output", "max_tokens", "words"),
    [
        (20, 0, None, "20 prompt tokens and at least 1 output tokens, the limit for both together is 20"),
        (10, 10, None, "10 prompt tokens and at least 11 output tokens"),
        (3, 0, 18, "3 prompt tokens and 18 output tokens, the limit for both together is 20"),
        (25, 0, 1, "25 prompt tokens and 1 output tokens"),
    ],
)
def test_what_never_fits_is_too_long_with_the_numbers(
    prompt: int, output: int, max_tokens: int | None, words: str
) -> None:
    with pytest.raises(TooLong, match=words):
        admitted(Work("r", (1,) * prompt, (1,) * output, max_tokens=max_tokens), DESCRIPTION, vocabulary=100)


def test_max_tokens_counts_what_exists_already() -> None:
    request = admitted(replace(WORK, output=(4, 5), max_tokens=4), DESCRIPTION, vocabulary=100)
    assert [request.append(6), request.append(7)] == [None, FinishReason.LENGTH]
    assert request.tokens == [1, 2, 3, 4, 5, 6, 7]


def test_without_max_tokens_the_model_length_ends_a_request() -> None:
    request = admitted(replace(WORK, prompt=(1,) * 18), DESCRIPTION, vocabulary=100)
    assert [request.append(2), request.append(2)] == [None, FinishReason.LENGTH]


def test_a_stop_token_ends_a_request_before_its_length_does() -> None:
    request = admitted(replace(WORK, max_tokens=1, stop_token_ids=frozenset({9})), DESCRIPTION, vocabulary=100)
    assert request.append(9) is FinishReason.STOP


def test_the_position_counts_output_tokens() -> None:
    request = admitted(replace(WORK, output=(4, 5)), DESCRIPTION, vocabulary=100)
    assert request.position == 2
    request.append(6)
    assert request.position == 3


def test_a_request_grows_together_with_its_next_choice() -> None:
    """B13: what another engine had produced counts."""
    sampling = Sampling(presence_penalty=0.5, min_tokens=3)
    request = admitted(replace(WORK, output=(4, 5), sampling=sampling), DESCRIPTION, vocabulary=100)
    request.append(4)
    assert request.choice.position == request.position == 3
    assert request.choice.seen is not None
    assert request.choice.seen.tokens.tolist() == [4, 5]
    assert request.choice.seen.counts.tolist() == [2, 1]
