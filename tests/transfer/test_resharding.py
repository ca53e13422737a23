"""Who takes what from whom, for any two layouts."""

from collections import Counter
from itertools import product

import pytest
from distserve_testing.layouts import shards_of
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.interface import KvShard
from distserve_worker.transfer.memory.selection import contains
from distserve_worker.transfer.resharding import LayoutsUnmatched, Piece, pieces

LAYERS = 12
_GRIDS = st.tuples(st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(1, 6))


def _halves(shard: KvShard) -> list[tuple[int, int]]:
    layers = range(shard.first_layer, shard.end_layer)
    return list(product(layers, range(shard.first_head, shard.end_head)))


@given(kv_heads=st.sampled_from([1, 2, 4, 12]), source=_GRIDS, reader=_GRIDS)
def test_every_reader_gets_each_head_of_each_layer_of_its_shard_exactly_once(
    kv_heads: int, source: tuple[int, int], reader: tuple[int, int]
) -> None:
    """B14."""
    sources, readers = (shards_of(LAYERS, kv_heads, *grid) for grid in (source, reader))
    if any(max(kv_heads, tp) % min(kv_heads, tp) for tp, _ in (source, reader)):
        return  # no engine has such a layout
    taken = pieces(sources, readers)
    for rank, shard in enumerate(readers):
        got = Counter(place for piece in taken if piece.reader == rank for place in _halves(piece.part))
        assert got == Counter(_halves(shard))
    assert all(contains(sources[piece.source], piece.part) for piece in taken)


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (2, 3), (12, 2)])
def test_equal_layouts_pair_rank_with_rank(tp: int, pp: int) -> None:
    shards = shards_of(LAYERS, 4, tp, pp)
    assert pieces(shards, shards) == tuple(Piece(rank, rank, shard) for rank, shard in enumerate(shards))


def test_replicas_of_a_head_share_the_readers() -> None:
    """A reader takes a head from the replica with its own tensor rank modulo their number."""
    sources, readers = shards_of(1, 2, 8, 1), shards_of(1, 2, 4, 1)
    assert [(piece.reader, piece.source) for piece in pieces(sources, readers)] == [(0, 0), (1, 1), (2, 6), (3, 7)]


def test_neighbouring_heads_of_one_source_move_together() -> None:
    sources, readers = shards_of(4, 12, 3, 2), shards_of(4, 12, 2, 1)
    assert [(piece.reader, piece.source, piece.part) for piece in pieces(sources, readers)] == [
        (0, 0, KvShard(0, 2, 0, 4)),
        (0, 1, KvShard(0, 2, 4, 2)),
        (0, 3, KvShard(2, 2, 0, 4)),
        (0, 4, KvShard(2, 2, 4, 2)),
        (1, 1, KvShard(0, 2, 6, 2)),
        (1, 2, KvShard(0, 2, 8, 4)),
        (1, 4, KvShard(2, 2, 6, 2)),
        (1, 5, KvShard(2, 2, 8, 4)),
    ]


@pytest.mark.parametrize(
    "sources", [(), (KvShard(0, 3, 0, 2),), (KvShard(0, 4, 0, 1),), (KvShard(0, 2, 0, 2), KvShard(3, 1, 0, 2))]
)
def test_what_nobody_holds_is_said(sources: tuple[KvShard, ...]) -> None:
    with pytest.raises(LayoutsUnmatched, match="no rank holds layer"):
        pieces(sources, (KvShard(0, 4, 0, 2),))
