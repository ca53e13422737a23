"""Parts of blocks in CPU memory as arrays: nothing is copied here, and there is no Python work per head."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from distserve_worker.engine.interface import KvShard
from distserve_worker.transfer.memory.selection import Selection, within

Bytes = NDArray[np.uint8]


def host_parts(memory: Bytes, shard: KvShard, head_bytes: int, part: KvShard, blocks: Sequence[int]) -> Iterator[Bytes]:
    """`part` of each of `blocks` of a region in order, [layers, 2, heads, head_bytes].

    `memory` holds the region's blocks and nothing else, `shard` says what is in each.
    """
    found = memory.reshape(-1, shard.layers, 2, shard.heads, head_bytes)[within(shard, part)]
    return (found[block] for block in blocks)


def selected_parts(selection: Selection) -> Iterator[Bytes]:
    """`host_parts` of a selection."""
    region = selection.region
    return host_parts(region.memory.numpy(), region.shard, region.layout.head_bytes, selection.part, selection.blocks)
