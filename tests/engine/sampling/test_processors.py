"""Every parameter that changes a distribution does to it what transformers' processors do."""

from dataclasses import replace

import pytest
import torch
import transformers.generation.logits_process as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.sampling.adjustments import adjusted
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.distribution import distribution, sorted_cut

PROMPT, OUTPUT = (3, 4, 4, 99), (4, 7, 7, 7, 250)
STOPS = frozenset({2, 11})
VOCABULARY = 3000


def _logits(seed: int = 0) -> torch.Tensor:
    return 4 * torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def _adjusted(sampling: Sampling, logits: torch.Tensor) -> torch.Tensor:
    return adjusted(logits, [Choice.of(sampling, PROMPT, OUTPUT, STOPS)])


def _distribution(sampling: Sampling, logits: torch.Tensor) -> torch.Tensor:
    weights = distribution(_adjusted(sampling, logits), [sampling])
    return weights / weights.sum(dim=-1, keepdim=True)


def _expected(logits: torch.Tensor, *processors: reference.LogitsProcessor) -> torch.Tensor:
    scores = logits.clone()
    for processor in processors:
        scores = processor(torch.tensor([[*PROMPT, *OUTPUT]]), scores)
    return scores


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 100.0])
def test_repetition_penalty(penalty: float) -> None:
    processor = reference.RepetitionPenaltyLogitsProcessor(penalty)
    ours = _adjusted(Sampling(repetition_penalty=penalty), _logits())
    torch.testing.assert_close(ours, _expected(_logits(), processor))


def test_logit_bias() -> None:
    bias = {5: 100.0, 17: -100.0, 4: 0.5}
    processor = reference.SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()})
    ours = _adjusted(Sampling(logit_bias=tuple(bias.items())), _logits())
    torch.testing.assert_close(ours, _expected(_logits(), processor))


@pytest.mark.parametrize("least", [0, len(OUTPUT), len(OUTPUT) + 1])
def test_min_tokens(least: int) -> None:
    processor = reference.MinNewTokensLengthLogitsProcessor(len(PROMPT), least, sorted(STOPS))
    ours = _adjusted(Sampling(min_tokens=least), _logits())
    torch.testing.assert_close(ours, _expected(_logits(), processor))


def test_presence_and_frequency_penalties_count_the_output_alone() -> None:
    """By OpenAI's formula; transformers has no such processors."""
    expected = _logits()
    for token, count in {4: 1, 7: 3, 250: 1}.items():
        expected[0, token] -= 0.7 * count + 1.5
    ours = _adjusted(Sampling(presence_penalty=1.5, frequency_penalty=0.7), _logits())
    torch.testing.assert_close(ours, expected)


def test_biases_come_before_penalties_and_both_before_temperature() -> None:
    logits = torch.zeros(1, VOCABULARY)
    sampling = Sampling(0.5, repetition_penalty=2.0, presence_penalty=1.0, logit_bias=((7, 6.0), (1, 1.0)))
    weights = _distribution(sampling, logits)
    assert float(weights[0, 7] / weights[0, 0]) == pytest.approx(float(torch.tensor((6.0 / 2 - 1) / 0.5).exp()))


CUTS = [
    Sampling(0.7),
    Sampling(1.0, top_k=1),
    Sampling(1.0, top_k=50),
    Sampling(2.0, top_k=2500),
    Sampling(1.0, top_k=10**6),
    Sampling(1.0, top_p=0.9),
    Sampling(2.0, top_p=0.999),
    Sampling(1.0, top_p=1e-6),
    Sampling(1.0, min_p=0.05),
    Sampling(1.5, min_p=1.0),
    Sampling(1.3, top_p=0.8, top_k=30, min_p=0.02),
    Sampling(2.0, top_p=0.95, top_k=2000, min_p=1e-5),
]


def _warpers(sampling: Sampling) -> list[reference.LogitsProcessor]:
    warpers: list[reference.LogitsProcessor] = [reference.TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        warpers.append(reference.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(reference.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(reference.MinPLogitsWarper(sampling.min_p))
    return warpers


@pytest.mark.parametrize("sampling", CUTS, ids=str)
@pytest.mark.parametrize("spread", [0.02, 1.0])
def test_temperature_and_cuts(sampling: Sampling, spread: float) -> None:
    logits = spread * _logits(1)
    expected = torch.softmax(_expected(logits, *_warpers(sampling)), dim=-1)
    torch.testing.assert_close(_distribution(sampling, logits), expected, atol=1e-6, rtol=1e-4)


def test_rows_with_different_cuts_are_cut_each_its_own_way() -> None:
    logits = torch.cat([_logits(seed) for seed in range(len(CUTS))])
    weights = distribution(logits, CUTS)
    for row, sampling in enumerate(CUTS):
        assert torch.equal(weights[row], distribution(logits[row : row + 1], [sampling])[0])


@pytest.mark.parametrize("spread", [0.02, 1.0])
def test_a_gpu_cuts_all_rows_at_once_to_the_same_tokens(spread: float) -> None:
    logits = spread * torch.cat([_logits(seed) for seed in range(len(CUTS))])
    cuts = [replace(sampling, min_p=0.0) for sampling in CUTS]
    untouched = distribution(logits, [replace(sampling, top_p=1.0, top_k=0) for sampling in cuts])
    assert torch.equal(sorted_cut(untouched, cuts), distribution(logits, cuts))


@settings(max_examples=60)
@given(
    logits=st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    top_k=st.integers(1, 50),
    top_p=st.floats(0.01, 1.0),
)
def test_among_equals_at_the_edge_the_lowest_ids_stay(logits: list[int], top_k: int, top_p: float) -> None:
    """No more than were asked for, as often as a value occurs."""
    row = torch.tensor([logits], dtype=torch.float32)
    weights = distribution(row, [Sampling(1.0, top_p, top_k)])
    assert torch.equal(sorted_cut(torch.softmax(row, dim=-1), [Sampling(1.0, top_p, top_k)]), weights)
    kept = weights[0].nonzero().flatten().tolist()
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    assert sorted(order[: len(kept)]) == kept
    assert 1 <= len(kept) <= top_k
