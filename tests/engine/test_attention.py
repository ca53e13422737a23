"""Attention over the paged cache, against attention written out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.attention import DecodeAttention, PrefillAttention, similar_runs
from distserve_worker.engine.interface import KvLayout
from distserve_worker.engine.kv_memory import KvMemory

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=8, block_tokens=16, dtype="FP32")
HEADS = 6
LENGTHS = [1, 17, 40, 250]


def _written_out(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last len(query) of len(key) tokens, each key/value head repeated for its query heads."""
    key, value = (tensor.repeat_interleave(HEADS // 2, dim=1) for tensor in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) / 8**0.5
    positions = torch.arange(len(key))
    scores.masked_fill_(positions > positions[-len(query) :, None], -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture
def memory() -> KvMemory:
    return KvMemory(LAYOUT, 64, torch.float32, torch.device("cpu"))


def _tables() -> list[list[int]]:
    """Scattered blocks for one token more than each of LENGTHS."""
    free = torch.randperm(64, generator=torch.Generator().manual_seed(1)).tolist()
    return [[free.pop() for _ in range(length // 16 + 1)] for length in LENGTHS]


def test_prompts_of_mixed_lengths_see_only_themselves_and_decode_sees_all_that_was_stored(memory: KvMemory) -> None:
    tables, total = _tables(), sum(LENGTHS)
    query, key, value = _random(total, HEADS, 8), _random(total, 2, 8), _random(total + 0, 2, 8).neg()
    prefill = PrefillAttention(memory, LENGTHS, tables)
    for layer in range(2):
        out = prefill(layer, query + layer, key + layer, value - layer)
        parts = [torch.split(tensor, LENGTHS) for tensor in (query + layer, key + layer, value - layer)]
        expected = torch.cat([_written_out(*part) for part in zip(*parts, strict=True)])
        torch.testing.assert_close(out, expected)
    assert prefill.positions.tolist() == [position for length in LENGTHS for position in range(length)]

    batch = torch.tensor([table + [table[0]] * (16 - len(table)) for table in tables])
    decode = DecodeAttention(memory, batch, memory.row_indices(batch), LENGTHS)
    new_query, new_key, new_value = _random(4, HEADS, 8), _random(4, 2, 8), _random(4, 2, 8).neg()
    for layer in range(2):
        out = decode(layer, new_query, new_key, new_value)
        keys, values = torch.split(key + layer, LENGTHS), torch.split(value - layer, LENGTHS)
        expected = torch.cat(
            [
                _written_out(
                    new_query[row : row + 1],
                    torch.cat((keys[row], new_key[row : row + 1])),
                    torch.cat((values[row], new_value[row : row + 1])),
                )
                for row in range(4)
            ]
        )
        torch.testing.assert_close(out, expected)


@given(sizes=st.lists(st.integers(1, 600), min_size=1, max_size=40).map(sorted))
def test_runs_cover_the_batch_in_order_and_padding_at_most_doubles(sizes: list[int]) -> None:
    runs = similar_runs(sizes)
    assert [index for run in runs for index in range(len(sizes))[run]] == list(range(len(sizes)))
    for run in runs:
        members = sizes[run]
        assert members[-1] <= max(8, 2 * members[0])
