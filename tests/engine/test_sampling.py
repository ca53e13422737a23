"""Sampling: what is kept, how it is drawn, and that nothing but the row itself decides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.sampling import Choice, sample, uniform

ROW = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0])
DRAWS = 3000


def _drawn(logits: torch.Tensor, sampling: Sampling, draws: int = DRAWS) -> torch.Tensor:
    """How often each token is drawn over the positions of one request, as shares."""
    tokens = sample(logits.expand(draws, -1), [Choice(sampling, position) for position in range(draws)])
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


def test_temperature_zero_takes_the_most_likely() -> None:
    assert sample(ROW.unsqueeze(0), [Choice(Sampling(), 0)]) == [1]


@pytest.mark.parametrize("temperature", [1e-40, 1e-6])
def test_a_temperature_next_to_zero_does_too(temperature: float) -> None:
    assert sample(ROW.unsqueeze(0), [Choice(Sampling(temperature), 0)]) == [1]


def test_tokens_are_drawn_by_their_probability() -> None:
    expected = torch.softmax(ROW / 0.7, dim=-1)
    torch.testing.assert_close(_drawn(ROW, Sampling(0.7, seed=5)), expected, atol=0.03, rtol=0)


def test_the_same_seed_and_position_draw_the_same_token() -> None:
    assert uniform(1, 2) == uniform(1, 2)
    assert len({uniform(1, 2), uniform(2, 1), uniform(1, 3), uniform(3, 2)}) == 4
    assert 0.0 <= uniform(2**64 - 1, 8191) < 1.0


@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0, top_k=1), Sampling(1.0, top_k=2), Sampling(1.0, top_p=0.5), Sampling(1.0, top_p=0.9, top_k=3)],
)
def test_only_kept_tokens_are_drawn_and_all_of_them(sampling: Sampling) -> None:
    drawn = _drawn(ROW, sampling)
    assert set(drawn.nonzero().flatten().tolist()) == _kept(ROW, sampling)


@settings(max_examples=60, deadline=None)
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
    assert set(sample(row.expand(20, -1), [Choice(sampling, position) for position in range(20)])) <= kept


def test_a_flat_distribution_over_a_large_vocabulary_is_drawn_from_in_full() -> None:
    """Wider than the part of the vocabulary that is looked at first."""
    logits = torch.linspace(0, -0.1, 5000)
    for sampling in (Sampling(1.0, seed=1), Sampling(1.0, top_p=0.99, seed=1), Sampling(1.0, top_k=4900, seed=1)):
        tokens = sample(logits.expand(200, -1), [Choice(sampling, position) for position in range(200)])
        assert max(token for token in tokens if token is not None) > 4500


def test_a_row_is_drawn_alike_alone_and_in_a_batch() -> None:
    logits = torch.randn(16, 2000, generator=torch.Generator().manual_seed(0))
    choices = [Choice(Sampling(0.5 * (row % 4), top_p=0.9, seed=row), position=3 * row) for row in range(16)]
    alone = [sample(logits[row : row + 1], [choice])[0] for row, choice in enumerate(choices)]
    assert sample(logits, choices) == alone
    assert sample(logits.flip(0), choices[::-1]) == alone[::-1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_the_row_that_is_not_finite_gets_no_token(value: float, temperature: float) -> None:
    logits = ROW.repeat(3, 1)
    logits[1, 2] = value
    first, second, third = sample(logits, [Choice(Sampling(temperature, top_k=1), 0)] * 3)
    assert (first, second, third) == (1, None, 1)
