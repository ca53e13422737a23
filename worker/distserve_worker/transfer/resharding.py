"""Which rank takes which layers and heads from which rank, for any two layouts: pure arithmetic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from distserve_worker.engine.interface import KvShard


class LayoutsUnmatched(ValueError):  # noqa: N818 - an answer about two layouts
    """Something that a rank needs is held by nobody; the text says what."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of every block that one rank of the reader takes from one rank of the source."""

    reader: int
    source: int
    part: KvShard


@lru_cache(maxsize=64)
def pieces(sources: tuple[KvShard, ...], readers: tuple[KvShard, ...]) -> tuple[Piece, ...]:
    """What each reader takes from whom, every layer of every head of its shard exactly once.

    Of several sources with the same head a reader takes that with its own tensor rank modulo their number, so replicas
    share the work. Raises `LayoutsUnmatched`.
    """
    return tuple(piece for reader in range(len(readers)) for piece in _of_reader(sources, readers, reader))


def _of_reader(sources: Sequence[KvShard], readers: Sequence[KvShard], reader: int) -> Iterator[Piece]:
    shard, tensor_rank = readers[reader], _tensor_rank(readers, reader)
    for first, end in pairwise(_cuts(sources, shard)):
        holders = [_holder(sources, first, head, tensor_rank) for head in range(shard.first_head, shard.end_head)]
        start = 0
        for place in range(1, len(holders) + 1):
            if place == len(holders) or holders[place] != holders[start]:
                part = KvShard(first, end - first, shard.first_head + start, place - start)
                yield Piece(reader, holders[start], part)
                start = place


def _tensor_rank(shards: Sequence[KvShard], rank: int) -> int:
    """Place of a rank among those of its stage."""
    return sum(shard.first_layer == shards[rank].first_layer for shard in shards[:rank])


def _cuts(sources: Sequence[KvShard], shard: KvShard) -> list[int]:
    """Layers at which the holders of a shard's heads can change, its first and its end among them."""
    ends = {layer for source in sources for layer in (source.first_layer, source.end_layer)}
    inside = {layer for layer in ends if shard.first_layer < layer < shard.end_layer}
    return sorted(inside | {shard.first_layer, shard.end_layer})


def _holder(sources: Sequence[KvShard], layer: int, head: int, tensor_rank: int) -> int:
    holders = [
        rank
        for rank, source in enumerate(sources)
        if source.first_layer <= layer < source.end_layer and source.first_head <= head < source.end_head
    ]
    if not holders:
        raise LayoutsUnmatched(f"no rank holds layer {layer} of KV head {head}")
    return holders[tensor_rank % len(holders)]
