"""Parts of blocks in CPU memory as arrays: nothing is copied here, and there is no Python work per head."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from distserve_worker.engine.interface import KvShard
from distserve_worker.transfer.memory.selection import Selection, within

Bytes = NDArray[np.uint8]


def host_parts(memory: Bytes, shard: KvShard, head_bytes: int, part: KvShard) -> Bytes:
    """`part` of every block of a region, [blocks, layers, 2, heads, head_bytes].

    `memory` holds the region's blocks and nothing else, `shard` says what is in each.
    """
    return memory.reshape(-1, shard.layers, 2, shard.heads, head_bytes)[within(shard, part)]


def own_parts(selection: Selection) -> Bytes:
    """`host_parts` of a selection's region."""
    region = selection.region
    return host_parts(region.memory.numpy(), region.shard, region.layout.head_bytes, selection.part)


def selected_parts(selection: Selection) -> Iterator[Bytes]:
    """The part of each selected block in order."""
    parts = own_parts(selection)
    return (parts[block] for block in selection.blocks)


def common_runs(ours: Sequence[int], theirs: Sequence[int], most: int) -> Iterator[tuple[slice, slice]]:
    """Blocks that follow each other on both sides, as one slice of each, of `most` blocks at most."""
    start = 0
    for place in range(1, len(ours) + 1):
        if (
            place < len(ours)
            and place - start < most
            and ours[place] - ours[place - 1] == theirs[place] - theirs[place - 1] == 1
        ):
            continue
        count = place - start
        yield slice(ours[start], ours[start] + count), slice(theirs[start], theirs[start] + count)
        start = place
