"""Attention over the paged cache, against attention written out."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.execution.attention import StepAttention
from distserve_worker.engine.execution.batch import Batch, Prompt, Running, Written
from distserve_worker.engine.execution.tables import LaneTables, similar_runs
from distserve_worker.engine.interface import KvLayout
from distserve_worker.engine.kv_memory import KvMemory

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=8, block_tokens=16, dtype="FP32")
HEADS = 6
LENGTHS = [1, 17, 40, 700]
BLOCKS = 64
WINDOWS = [None, 1, 10, 300]


@dataclass
class Sequence:
    """A request whose queries, keys and values of all tokens are known from the start."""

    table: tuple[int, ...]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    done: int = 0
    seat: int = 0
    written: int = field(default=0)

    def expected(self, start: int, stop: int, window: int | None) -> torch.Tensor:
        """Attention of the tokens [start, stop) over all they see, each key/value head repeated for its queries."""
        key, value = (tensor[:stop].repeat_interleave(HEADS // 2, dim=1) for tensor in (self.key, self.value))
        scores = torch.einsum("qhd,khd->hqk", self.query[start:stop], key) / 8**0.5
        places, positions = torch.arange(stop), torch.arange(start, stop)[:, None]
        unseen = places > positions
        if window is not None:
            unseen |= places <= positions - window
        scores.masked_fill_(unseen, -torch.inf)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)


def _random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def memory() -> KvMemory:
    """What nobody has written is not a number: whoever looks at it shows."""
    memory = KvMemory(LAYOUT, BLOCKS, torch.float32, torch.device("cpu"))
    memory.blocks.fill_(torch.nan)
    return memory


@pytest.fixture
def sequences() -> list[Sequence]:
    """Of LENGTHS and three tokens more, in scattered blocks."""
    free = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(1)).tolist()
    return [
        Sequence(
            tuple(free.pop() for _ in range((length + 2) // 16 + 1)),
            _random(seed, length + 3, HEADS, 8),
            _random(seed + 50, length + 3, 2, 8),
            _random(seed + 99, length + 3, 2, 8),
            seat=seed,
        )
        for seed, length in enumerate(LENGTHS)
    ]


def _step(
    memory: KvMemory,
    prompts: list[tuple[Sequence, int]],
    running: list[Sequence],
    tables: LaneTables,
    window: int | None = None,
) -> None:
    """One batch of so many tokens of each prompt and one of each running sequence, checked against the definition."""
    spans = [(one, one.done, one.done + count) for one, count in prompts]
    spans += [(one, one.done, one.done + 1) for one in running]
    batch = Batch(
        tuple(Prompt((0,) * count, one.done, one.table, samples=True) for one, count in prompts),
        _running(running) if running else None,
    )
    memory.clear([one.table[(stop - 1) // 16] for one, start, stop in spans if start <= (stop - 1) // 16 * 16])
    attention = StepAttention(memory, batch, tables.take(batch.running) if batch.running is not None else None)
    assert attention.positions.tolist() == [position for _, start, stop in spans for position in range(start, stop)]
    for layer in range(2):
        query = torch.cat([one.query[start:stop] for one, start, stop in spans])
        key = torch.cat([one.key[start:stop] for one, start, stop in spans])
        value = torch.cat([one.value[start:stop] for one, start, stop in spans])
        out = attention(layer, query, key, value, window)
        expected = torch.cat([one.expected(start, stop, window) for one, start, stop in spans])
        torch.testing.assert_close(out, expected)
    for one, _, stop in spans:
        one.done = stop


def _running(running: list[Sequence]) -> Running:
    written = []
    for one in running:
        held = one.done // 16 + 1
        if held > one.written:
            written.append(Written(one.seat, one.written, one.table[one.written : held]))
            one.written = held
    positions = tuple(one.done for one in running)
    return Running(0, tuple(one.seat for one in running), tuple(written), (0,) * len(running), positions)


@pytest.mark.parametrize("window", WINDOWS)
def test_prompts_see_only_themselves_and_running_requests_all_that_was_stored(
    memory: KvMemory, sequences: list[Sequence], window: int | None
) -> None:
    tables = LaneTables(torch.device("cpu"))
    _step(memory, list(zip(sequences, LENGTHS, strict=True)), [], tables, window)
    for _ in range(3):
        _step(memory, [], sequences, tables, window)


@pytest.mark.parametrize("window", WINDOWS)
def test_prompts_in_pieces_ride_with_running_requests(
    memory: KvMemory, sequences: list[Sequence], window: int | None
) -> None:
    tables = LaneTables(torch.device("cpu"))
    first, second, third, long = sequences
    _step(memory, [(first, 1), (second, 5), (long, 300)], [], tables, window)
    _step(memory, [(second, 12), (long, 7)], [first], tables, window)
    _step(memory, [(third, 40), (long, 393)], [first, second], tables, window)
    _step(memory, [], [first, second, third, long], tables, window)


@given(sizes=st.lists(st.integers(1, 600), min_size=1, max_size=40).map(sorted), most=st.integers(1, 4000))
def test_runs_cover_the_batch_in_order_and_padding_at_most_doubles(sizes: list[int], most: int) -> None:
    runs = similar_runs(sizes, always=8, most=most)
    assert [index for run in runs for index in range(len(sizes))[run]] == list(range(len(sizes)))
    for run in runs:
        members = sizes[run]
        assert members[-1] <= max(8, 2 * members[0])
        assert len(members) == 1 or len(members) * members[-1] <= most


def test_a_run_is_as_long_as_it_may_be() -> None:
    assert similar_runs([10, 11, 12, 12, 13], always=8, most=65) == [slice(0, 5)]
    assert similar_runs([10, 11, 12, 12, 13], always=8, most=64) == [slice(0, 4), slice(4, 5)]
