"""Both sides of a transfer see the same bytes in the same order, whatever the shape of their own blocks."""

import pytest
import torch
from distserve_testing.layouts import shards_of
from distserve_testing.regions import content, random_region
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.interface import KvLayout, KvShard, Region
from distserve_worker.transfer.memory.host import common_runs, selected_parts
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import incoming, outgoing
from distserve_worker.transfer.resharding import pieces

LAYOUT = KvLayout(layers=4, kv_heads=4, head_dim=8, block_tokens=16, dtype="BF16")
_GRIDS = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4))


def _moved(source: Selection, target: Selection) -> None:
    """What a transport does."""
    stream = b"".join(buffer for buffers in outgoing(source) for buffer in map(bytes, buffers))
    assert len(stream) == source.nbytes == target.nbytes
    for buffer in incoming(target):
        buffer[:] = stream[: len(buffer)]
        stream = stream[len(buffer) :]
    assert not stream


def _regions(shards: tuple[KvShard, ...]) -> list[Region]:
    return [random_region(LAYOUT, 9, shard) for shard in shards]


@given(source=_GRIDS, reader=_GRIDS)
def test_blocks_arrive_whole_between_any_two_layouts(source: tuple[int, int], reader: tuple[int, int]) -> None:
    """B14: every piece of a plan, moved on its own, makes each reader's blocks equal to the model's."""
    whole = random_region(LAYOUT, 9)
    sources, readers = _regions(shards_of(4, 4, *source)), _regions(shards_of(4, 4, *reader))
    theirs, ours = (3, 1, 7), (8, 0, 5)
    for region in sources:
        content(Selection(region, theirs, region.shard))  # its shape is that of the part
        view = region.memory.view(-1, region.shard.layers, 2, region.shard.heads, LAYOUT.head_bytes)
        view[list(theirs)] = content(Selection(whole, theirs, region.shard))
    untouched = [region.memory[[1, 2, 3]].clone() for region in readers]
    for piece in pieces(tuple(r.shard for r in sources), tuple(r.shard for r in readers)):
        _moved(Selection(sources[piece.source], theirs, piece.part), Selection(readers[piece.reader], ours, piece.part))
    for region, before in zip(readers, untouched, strict=True):
        selected = content(Selection(region, ours, region.shard))
        assert torch.equal(selected, content(Selection(whole, theirs, region.shard)))
        assert torch.equal(region.memory[[1, 2, 3]], before)


def test_whole_blocks_and_whole_stages_are_read_in_place() -> None:
    region = random_region(LAYOUT, 4)
    for part in (region.shard, KvShard(1, 2, 0, 4)):
        selection = Selection(region, (2, 0), part)
        assert selection.is_contiguous
        assert [one.nbytes for one in selected_parts(selection)] == [selection.bytes_per_block] * 2
        assert all(one.base is not None for one in selected_parts(selection))


def test_a_part_larger_than_the_staging_memory_arrives_whole() -> None:
    layout = KvLayout(layers=2, kv_heads=2, head_dim=4096, block_tokens=16, dtype="FP32")
    source, target = random_region(layout, 7), random_region(layout, 7, KvShard(0, 2, 1, 1))
    part = KvShard(0, 2, 1, 1)
    _moved(Selection(source, tuple(range(7)), part), Selection(target, tuple(reversed(range(7))), part))
    assert torch.equal(
        content(Selection(target, tuple(reversed(range(7))), part)), content(Selection(source, tuple(range(7)), part))
    )


@pytest.mark.parametrize("blocks", [(), (4,), (-1,)])
def test_blocks_that_a_region_does_not_have_cannot_be_selected(blocks: tuple[int, ...]) -> None:
    region = random_region(LAYOUT, 4)
    with pytest.raises(ValueError, match="not among the 4"):
        Selection(region, blocks, region.shard)


@pytest.mark.parametrize(
    "part", [KvShard(0, 2, 2, 2), KvShard(2, 3, 0, 2), KvShard(2, 2, 0, 3), KvShard(2, 0, 0, 2), KvShard(2, 2, 1, 0)]
)
def test_parts_outside_a_regions_shard_cannot_be_selected(part: KvShard) -> None:
    region = random_region(LAYOUT, 4, KvShard(2, 2, 0, 2))
    with pytest.raises(ValueError, match="not in the region"):
        Selection(region, (0,), part)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12), st.integers(1, 5))
def test_runs_are_the_same_blocks_in_the_same_order(pairs: list[tuple[int, int]], most: int) -> None:
    ours, theirs = zip(*pairs, strict=True)
    runs = list(common_runs(ours, theirs, most))
    unrolled = [
        pair
        for target, source in runs
        for pair in zip(range(target.start, target.stop), range(source.start, source.stop), strict=True)
    ]
    assert unrolled == pairs
    assert all(1 <= target.stop - target.start <= most for target, _ in runs)


def test_neighbours_on_both_sides_are_one_run() -> None:
    assert list(common_runs((4, 5, 6, 8), (0, 1, 2, 3), 10)) == [(slice(4, 7), slice(0, 3)), (slice(8, 9), slice(3, 4))]
