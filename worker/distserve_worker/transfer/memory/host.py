"""A selection of CPU memory as arrays: nothing is copied here, and there is no Python work per head."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from distserve_worker.transfer.memory.selection import Selection

Bytes = NDArray[np.uint8]


def host_parts(selection: Selection, memory: Bytes | None = None) -> Iterator[Bytes]:
    """The part of each block in order: [layers, 2, heads, bytes of one head], or flat where it is contiguous.

    `memory` has the geometry of the selection's region, flat or by blocks; by default it is the region's own.
    """
    memory = selection.region.memory.numpy() if memory is None else memory
    shard = selection.region.shard
    blocks = memory.reshape(-1, shard.layers, 2, shard.heads, selection.region.layout.head_bytes)[selection.within]
    if selection.is_contiguous:
        return (blocks[block].reshape(-1) for block in selection.blocks)
    return (blocks[block] for block in selection.blocks)
