"""What a request remembers for its next choice, and that a leg elsewhere remembers the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.sampler import Sampled, sample
from distserve_worker.engine.sampling.seen import SeenTokens

TOKENS = st.lists(st.integers(0, 200), max_size=300)
SAMPLING = Sampling(0.9, top_p=0.95, seed=3, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4)


@given(prompt=TOKENS, output=TOKENS)
def test_tokens_are_counted_as_they_come(prompt: list[int], output: list[int]) -> None:
    seen = SeenTokens(prompt)
    for token in output:
        seen.add(token)
    counted = dict(zip(seen.tokens.tolist(), seen.counts.tolist(), strict=True))
    assert counted == {token: output.count(token) for token in {*prompt, *output}}


def _continued(choice: Choice, count: int) -> list[Sampled | None]:
    """Choose tokens one after another; the logits depend on the position, as a model's would."""
    rows = []
    for _ in range(count):
        logits = torch.randn(1, 200, generator=torch.Generator().manual_seed(choice.position))
        [row] = sample(logits, [choice])
        assert row is not None
        rows.append(row)
        choice.take(row.token)
    return [*rows]


@pytest.mark.parametrize("moved_at", [1, 7, 19])
def test_a_request_goes_on_elsewhere_as_if_it_had_stayed(moved_at: int) -> None:
    """B13: penalties, withheld stops and the position in the random stream carry over."""
    sampling = Sampling(**{field: getattr(SAMPLING, field) for field in SAMPLING.__slots__} | {"min_tokens": 12})
    stops = frozenset(range(0, 200, 2))
    whole = _continued(Choice.of(sampling, (5, 6), (), stops), 20)
    tokens = [row.token for row in whole if row is not None]
    assert all(token % 2 for token in tokens[:12])
    moved = Choice.of(sampling, (5, 6), tokens[:moved_at], stops)
    assert _continued(moved, 20 - moved_at) == whole[moved_at:]


def test_without_penalties_nothing_is_counted() -> None:
    choice = Choice.of(Sampling(1.0, min_tokens=1), (1, 2), (), frozenset({3}))
    assert choice.seen is None
    assert choice.adjusts
    choice.take(5)
    assert not choice.adjusts
