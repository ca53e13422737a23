"""Log probabilities that come with tokens."""

import pytest
import torch

from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.sampler import Sampled, sample

LOGITS = torch.randn(3, 500, generator=torch.Generator().manual_seed(2))
EXPECTED = torch.log_softmax(LOGITS, dim=-1)


def _sampled(sampling: Sampling) -> Sampled:
    row = sample(LOGITS[:1], [Choice.of(sampling, (3, 4), (5, 6), frozenset({1}))])[0]
    assert row is not None
    return row


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(logprobs=4),
        Sampling(1.7, top_k=9, seed=8, logprobs=4),
        Sampling(1.0, repetition_penalty=1.5, presence_penalty=2.0, logit_bias=((9, 100.0),), min_tokens=9, logprobs=4),
    ],
)
def test_they_are_those_of_the_model_whatever_is_done_to_its_logits(sampling: Sampling) -> None:
    row = _sampled(sampling)
    assert row.logprobs is not None
    assert row.logprobs.logprob == pytest.approx(float(EXPECTED[0, row.token]), abs=1e-5)
    values, tokens = EXPECTED[0].topk(4)
    assert [token for token, _ in row.logprobs.top] == tokens.tolist()
    assert [value for _, value in row.logprobs.top] == pytest.approx(values.tolist(), abs=1e-5)


def test_only_who_asks_gets_them_and_as_many_as_asked() -> None:
    choices = [Choice(Sampling(logprobs=0)), Choice(Sampling()), Choice(Sampling(logprobs=20))]
    none, nothing, twenty = (row.logprobs for row in sample(LOGITS, choices) if row is not None)
    assert nothing is None
    assert none is not None
    assert none.top == ()
    assert twenty is not None
    assert len(twenty.top) == 20


def test_no_more_are_told_than_there_are_tokens() -> None:
    [row] = sample(torch.zeros(1, 3), [Choice(Sampling(logprobs=20))])
    assert row is not None
    assert row.logprobs is not None
    assert [token for token, _ in row.logprobs.top] == [0, 1, 2]
