"""The memory of the KV cache of one rank: one tensor of blocks, read and written by steps and by transports."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from distserve_worker.engine.interface import KvLayout, KvShard, Region
from distserve_worker.engine.shared_memory import shared_bytes


@dataclass(frozen=True, slots=True)
class Slots:
    """Where new tokens are stored: the index of the block and the place in it, each [n]."""

    blocks: torch.Tensor
    places: torch.Tensor


class KvMemory:
    """`count` blocks of `layout`: a tensor [blocks, layers, 2 (K, V), kv_heads, block_tokens, head_dim]."""

    def __init__(self, layout: KvLayout, count: int, dtype: torch.dtype, device: torch.device) -> None:
        self.layout = layout
        self.count = count
        shape = (count, layout.layers, 2, layout.kv_heads, layout.block_tokens, layout.head_dim)
        self._bytes, self._file = _allocated(count * layout.block_bytes, device)
        self.blocks = self._bytes.view(dtype).view(shape)
        # One row is what one head of one layer keeps of a block: [block_tokens * head_dim], contiguous.
        self.rows = self.blocks.view(-1, layout.block_tokens * layout.head_dim)
        self.rows_per_layer = 2 * layout.kv_heads

    @property
    def device(self) -> torch.device:
        """Where the memory is."""
        return self.blocks.device

    def region(self, shard: KvShard) -> Region:
        """This memory as transports see it; `shard` tells which part of the model its blocks hold."""
        return Region(shard, self.layout, self._bytes.view(-1, self.layout.block_bytes), self._file)

    def clear(self, indices: Sequence[int]) -> None:
        """Zero whole blocks, so that the unused end of a block holds nothing of its earlier owner, nor a NaN."""
        for index in indices:
            self.blocks[index].zero_()

    def write(self, layer: int, slots: Slots, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store K and V [n, kv_heads, head_dim] of n tokens in `slots`."""
        self.blocks[slots.blocks, layer, 0, :, slots.places] = key
        self.blocks[slots.blocks, layer, 1, :, slots.places] = value

    def row_indices(self, tables: torch.Tensor) -> torch.Tensor:
        """Rows of layer 0 for block tables [batch, n] as [batch, 2, kv_heads, n]; layers follow at `rows_per_layer`."""
        first = tables * (self.layout.layers * self.rows_per_layer)
        of_layer = torch.arange(self.rows_per_layer, device=tables.device).view(2, self.layout.kv_heads, 1)
        return first[:, None, None, :] + of_layer

    def gather(self, layer: int, rows: torch.Tensor) -> torch.Tensor:
        """Copy of K and V behind `rows` (of `row_indices`) as [batch, 2, kv_heads, tokens, head_dim]."""
        batch, _, heads, blocks = rows.shape
        found = self.rows[layer * self.rows_per_layer :].index_select(0, rows.reshape(-1))
        return found.view(batch, 2, heads, blocks * self.layout.block_tokens, self.layout.head_dim)


def _allocated(count: int, device: torch.device) -> tuple[torch.Tensor, int | None]:
    """Zeroed bytes, and their file when they are on the CPU."""
    if device.type == "cpu":
        return shared_bytes(count)
    return torch.zeros(count, dtype=torch.uint8, device=device), None
