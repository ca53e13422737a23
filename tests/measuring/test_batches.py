"""Steps that are worth measuring: all fit the engine, and they tell apart what a law tells apart."""

from collections.abc import Callable

import pytest

from distserve_worker.measuring.batches import (
    MOST_REQUESTS,
    MOST_TOKENS,
    Batch,
    Bounds,
    decode_batches,
    prefill_batches,
)
from distserve_worker.measuring.surveying import foreseen

ROOMY = Bounds(longest=8192, blocks=100_000, block_tokens=16)


@pytest.mark.parametrize("make", [prefill_batches, decode_batches])
@pytest.mark.parametrize("bounds", [ROOMY, Bounds(256, 100_000, 16), Bounds(8192, 70, 16), Bounds(40, 9, 16)])
def test_no_batch_is_more_than_the_engine_holds(make: Callable[[Bounds], list[Batch]], bounds: Bounds) -> None:
    for batch in make(bounds):
        assert max(batch.lengths) + 2 <= bounds.longest
        assert sum(-(-(length + 2) // 16) for length in batch.lengths) <= bounds.blocks


@pytest.mark.parametrize("make", [prefill_batches, decode_batches])
def test_batches_rise_in_work_and_each_comes_once(make: Callable[[Bounds], list[Batch]]) -> None:
    batches = make(ROOMY)
    assert [batch.tokens for batch in batches] == sorted(batch.tokens for batch in batches)
    assert len(set(batches)) == len(batches)


def test_prefill_batches_tell_tokens_and_squares_apart() -> None:
    batches = prefill_batches(ROOMY)
    squares = {batch.squares for batch in batches if batch.tokens == 512}
    assert len(squares) == 3
    assert max(batch.tokens for batch in batches) == MOST_TOKENS
    assert all(len(set(batch.lengths)) == 1 for batch in batches)


def test_decode_batches_are_of_mixed_contexts_around_a_mean() -> None:
    batches = decode_batches(ROOMY)
    assert {len(batch.lengths) for batch in batches} == {1, 2, 4, 8, 16, 32, MOST_REQUESTS}
    assert {round(batch.tokens / len(batch.lengths)) for batch in batches} == {32, 256, 2048}
    for batch in batches:
        mean = batch.tokens / len(batch.lengths)
        assert 0.5 * mean <= min(batch.lengths) <= max(batch.lengths) <= 1.5 * mean
        assert list(batch.lengths) == sorted(batch.lengths)


def test_nothing_is_foreseen_of_the_first_batch() -> None:
    assert foreseen(Batch("prefill", (4,)), {}) == 0


@pytest.mark.parametrize(
    ("batch", "most"),
    [
        (Batch("prefill", (4,)), 1),  # less work: at most as long
        (Batch("prefill", (16,)), 4),  # squares grow fourfold
        (Batch("prefill", (8, 8)), 2),  # squares twofold, tokens twofold
        (Batch("decode", (64, 64)), 16),
    ],
)
def test_a_batch_takes_at_most_as_much_longer_as_its_work_grows(batch: Batch, most: float) -> None:
    known = Batch(batch.phase, (8,))
    assert foreseen(batch, {known: 1.0}) == most
    assert foreseen(batch, {known: 1.0, batch: 0.5}) == 0.5
