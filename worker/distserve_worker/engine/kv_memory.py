"""The memory of the KV cache: one tensor of blocks, read and written by steps and by transports."""

from dataclasses import dataclass
from typing import Self

import torch

from distserve_worker.engine.interface import BlockRef, KvBlocks, KvLayout


@dataclass(frozen=True, slots=True)
class Slots:
    """Where new tokens are stored: the index of the block and the place in it, each [n]."""

    blocks: torch.Tensor
    places: torch.Tensor

    @classmethod
    def on(cls, device: torch.device, blocks: torch.Tensor, places: torch.Tensor) -> Self:
        """The slots with both tensors on `device`."""
        return cls(blocks.to(device), places.to(device))


class KvMemory:
    """`count` blocks of `layout`: a tensor [blocks, layers, 2 (K, V), kv_heads, block_tokens, head_dim]."""

    def __init__(self, layout: KvLayout, count: int, dtype: torch.dtype, device: torch.device) -> None:
        self.layout = layout
        shape = (count, layout.layers, 2, layout.kv_heads, layout.block_tokens, layout.head_dim)
        self.blocks = torch.zeros(shape, dtype=dtype, device=device)
        # One row is what one head of one layer keeps of a block: [block_tokens * head_dim], contiguous.
        self.rows = self.blocks.view(-1, layout.block_tokens * layout.head_dim)
        self.rows_per_layer = 2 * layout.kv_heads

    @property
    def device(self) -> torch.device:
        """Where the memory is."""
        return self.blocks.device

    def view(self, blocks: tuple[BlockRef, ...]) -> KvBlocks:
        """Buffers of `blocks` as bytes, writable, sharing this memory."""
        flat = self.blocks.view(torch.uint8).reshape(self.blocks.shape[0], -1)
        return KvBlocks(self.layout, tuple(flat[block.index].numpy().data for block in blocks))

    def clear(self, indices: list[int]) -> None:
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
