"""What moves in one transfer: the same part of some blocks, as one sequence of bytes that both sides agree on."""

from dataclasses import dataclass

from distserve_worker.engine.interface import KvShard, Region


def contains(whole: KvShard, part: KvShard) -> bool:
    """Whether `part` is not empty and lies in `whole`."""
    layers = whole.first_layer <= part.first_layer < part.end_layer <= whole.end_layer
    return layers and whole.first_head <= part.first_head < part.end_head <= whole.end_head


def within(shard: KvShard, part: KvShard) -> tuple[slice, slice, slice, slice]:
    """Where `part` is in [blocks, layers, 2, heads, bytes of one head] of a region of `shard`; all blocks."""
    layer, head = part.first_layer - shard.first_layer, part.first_head - shard.first_head
    return slice(None), slice(layer, layer + part.layers), slice(None), slice(head, head + part.heads)


@dataclass(frozen=True, slots=True)
class Selection:
    """`part` of each of `blocks` (indices, in token order) of a region.

    The order of its bytes: by block, layer, keys before values, head; what one head keeps of a block in one layer is
    contiguous everywhere. Raises ValueError when the region has no such blocks or not this part.
    """

    region: Region
    blocks: tuple[int, ...]
    part: KvShard  # numbered as in the whole model

    def __post_init__(self) -> None:
        if not self.blocks or not 0 <= min(self.blocks) <= max(self.blocks) < self.region.blocks:
            raise ValueError(f"blocks {self.blocks} are not among the {self.region.blocks} of the region")
        if not contains(self.region.shard, self.part):
            raise ValueError(f"part {self.part} is not in the region's {self.region.shard}")

    @property
    def bytes_per_block(self) -> int:
        """Bytes that it takes of each block."""
        return self.part.layers * 2 * self.part.heads * self.region.layout.head_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the whole sequence."""
        return len(self.blocks) * self.bytes_per_block

    @property
    def is_contiguous(self) -> bool:
        """Whether its bytes of a block are one piece of memory."""
        return self.part.heads == self.region.shard.heads

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Its bytes of one block as [layers, 2, heads, bytes of one head]."""
        return self.part.layers, 2, self.part.heads, self.region.layout.head_bytes
