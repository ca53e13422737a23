"""Sampling: how tokens are drawn, and that nothing but the row itself decides."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.draw import draw, runners, times
from distserve_worker.engine.sampling.sampler import sample

ROW = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0])
DRAWS = 3000


def _tokens(logits: torch.Tensor, choices: list[Choice]) -> list[int | None]:
    return [None if row is None else row.token for row in sample(logits, choices)]


def _drawn(logits: torch.Tensor, sampling: Sampling, draws: int = DRAWS) -> torch.Tensor:
    """How often each token is drawn over the positions of one request, as shares."""
    tokens = _tokens(logits.expand(draws, -1), [Choice(sampling, position) for position in range(draws)])
    assert None not in tokens
    counts = torch.bincount(torch.tensor(tokens), minlength=logits.shape[-1])
    return counts / draws


def _kept(logits: torch.Tensor, sampling: Sampling) -> set[int]:
    """By the definition: the top_k most likely, then the fewest of them that hold top_p of their probability."""
    order = sorted(range(len(logits)), key=lambda token: -float(logits[token]))[: sampling.top_k or None]
    weights = [math.exp(float(logits[token]) / sampling.temperature) for token in order]
    kept, held = set(), 0.0
    for token, weight in zip(order, weights, strict=True):
        kept.add(token)
        held += weight / sum(weights)
        if held >= sampling.top_p:
            break
    return kept


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1e-40), Sampling(1e-6), Sampling(1.0, top_k=1)])
def test_the_most_likely_is_taken_where_no_other_can_be(sampling: Sampling) -> None:
    assert _tokens(ROW.unsqueeze(0), [Choice(sampling)]) == [1]


def test_of_equally_likely_tokens_greedy_takes_the_first() -> None:
    logits = torch.zeros(1, 700)
    assert _tokens(logits, [Choice(Sampling(1.0, top_k=1))]) == _tokens(logits, [Choice(Sampling())]) == [0]


def test_tokens_are_drawn_by_their_probability() -> None:
    expected = torch.softmax(ROW / 0.7, dim=-1)
    torch.testing.assert_close(_drawn(ROW, Sampling(0.7, seed=5)), expected, atol=0.03, rtol=0)


def test_the_same_seed_and_position_draw_the_same_token() -> None:
    assert times(1, 2, 500).tolist() == times(1, 2, 500).tolist()
    assert times(1, 2, 400).tolist() == times(1, 2, 500)[:400].tolist()
    asked = [(1, 2), (2, 1), (1, 3), (3, 2), (2**64 - 1, 8191)]
    assert len({number for seed, position in asked for number in times(seed, position, 500)}) == 500 * len(asked)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0, top_k=2), Sampling(1.0, top_p=0.5), Sampling(1.0, top_p=0.9, top_k=3), Sampling(0.9, top_p=5e-324)],
)
def test_only_kept_tokens_are_drawn_and_all_of_them(sampling: Sampling) -> None:
    drawn = _drawn(ROW, sampling)
    assert set(drawn.nonzero().flatten().tolist()) == _kept(ROW, sampling)


@settings(max_examples=60)
@given(
    logits=st.lists(st.integers(-20, 20), min_size=2, max_size=30, unique=True),
    temperature=st.floats(0.3, 2.0),
    top_p=st.floats(0.05, 1.0),
    top_k=st.integers(0, 40),
    seed=st.integers(0, 2**64 - 1),
)
def test_no_token_outside_of_the_kept_is_ever_drawn(
    logits: list[int], temperature: float, top_p: float, top_k: int, seed: int
) -> None:
    row = torch.tensor(logits, dtype=torch.float32) / 4
    sampling = Sampling(temperature, top_p, top_k, seed)
    kept = _kept(row, Sampling(temperature, min(1.0, top_p + 1e-5), top_k))  # at the edge rounding may keep one more
    assert set(_tokens(row.expand(20, -1), [Choice(sampling, position) for position in range(20)])) <= kept


def test_a_flat_distribution_over_a_large_vocabulary_is_drawn_from_in_full() -> None:
    """Wider than the part of the vocabulary that is looked at first."""
    logits = torch.linspace(0, -0.1, 5000)
    for sampling in (Sampling(1.0, seed=1), Sampling(1.0, top_p=0.99, seed=1), Sampling(1.0, top_k=4900, seed=1)):
        tokens = _tokens(logits.expand(200, -1), [Choice(sampling, position) for position in range(200)])
        assert max(token for token in tokens if token is not None) > 4500


SAMPLINGS = [
    Sampling(),
    Sampling(1.0),
    Sampling(0.7, top_p=0.9),
    Sampling(1.5, top_k=40, min_p=0.02),
    Sampling(1.0, repetition_penalty=1.3, logit_bias=((7, 5.0),)),
    Sampling(0.0, presence_penalty=2.0, frequency_penalty=-1.0),
    Sampling(2.0, top_p=0.999999, min_tokens=99),
    Sampling(1.0, top_k=1500, logprobs=3),
]


@settings(max_examples=25)
@given(order=st.permutations(range(16)))
def test_a_row_is_drawn_alike_alone_and_in_any_batch(order: list[int]) -> None:
    logits = 3 * torch.randn(16, 2000, generator=torch.Generator().manual_seed(0))
    samplings = [replace(SAMPLINGS[row % len(SAMPLINGS)], seed=row) for row in range(16)]

    def choice(row: int) -> Choice:
        return Choice.of(samplings[row], range(row), range(1000, 1000 + 3 * row), frozenset({5, 6}))

    alone = [sample(logits[row : row + 1], [choice(row)])[0] for row in range(16)]
    assert sample(logits[order], [choice(row) for row in order]) == [alone[row] for row in order]


@settings(max_examples=100)
@given(
    weights=st.lists(st.sampled_from([0.0, 1e-40, 1e-6, 0.3, 1.0]), min_size=1, max_size=700).filter(any),
    at=st.sampled_from([0.0, 1e-300, 0.25, 50.0]),
)
def test_a_token_of_no_weight_is_never_drawn(weights: list[float], at: float) -> None:
    row = torch.tensor([weights], dtype=torch.float32)
    assert row[0, int(draw(row, [np.full(runners(len(weights)), at)])[0])] > 0


def test_rounding_of_the_logits_changes_almost_no_token() -> None:
    """As another batch rounds them, one half of the vocabulary a little up: one of 10,000 tokens at most is another."""
    numbers = torch.Generator().manual_seed(0)
    error = 1e-5 * torch.linspace(-1.0, 1.0, 2000).sign()
    changed = 0
    for first in range(0, 20_000, 400):
        logits = torch.randn(400, 2000, generator=numbers)
        choices = [Choice(Sampling(1.0, seed=7), position) for position in range(first, first + 400)]
        pairs = zip(_tokens(logits, choices), _tokens(logits + error, choices), strict=True)
        changed += sum(one != other for one, other in pairs)
    assert changed <= 2


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of what torch was asked to compute."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("sampling", "unwanted"),
    [
        (Sampling(), {"sort", "topk", "_softmax", "clone"}),
        (Sampling(1.0, min_p=0.1), {"sort", "topk", "argmax"}),
        (Sampling(1.0, top_k=40), {"sort", "argmax"}),
    ],
)
def test_no_more_is_computed_than_the_parameters_ask_for(sampling: Sampling, unwanted: set[str]) -> None:
    """Sorting a vocabulary takes longer than a step of a small model."""
    with _Operations() as operations:
        sample(torch.randn(3, 5000), [Choice(sampling)] * 3)
    assert operations.names
    assert not operations.names & unwanted


def test_a_step_without_samples_has_no_tokens() -> None:
    assert sample(torch.empty(0, 100), []) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(1.0, top_k=2, top_p=0.1), Sampling(1.0, logprobs=2, repetition_penalty=2.0)]
)
def test_only_the_row_that_is_not_finite_gets_no_token(value: float, sampling: Sampling) -> None:
    logits = ROW.repeat(3, 1) * 20
    logits[1, 2] = value
    rows = _tokens(logits, [Choice.of(sampling, (4,), (), frozenset()) for _ in range(3)])
    assert rows == [1, None, 1]


def test_the_logits_of_the_model_are_left_as_they_are() -> None:
    logits = ROW.repeat(2, 1)
    sample(logits, [Choice(Sampling(1.0, top_k=2, logit_bias=((1, -100.0),))), Choice(Sampling(0.5))])
    assert torch.equal(logits, ROW.repeat(2, 1))
