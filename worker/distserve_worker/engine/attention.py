"""Attention of one step: stores the new K and V and attends over what each request may see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention

from distserve_worker.engine.kv_memory import KvMemory, Slots

_ALWAYS_SIMILAR: Final = 8  # blocks: below it padding costs less than another call


class PrefillAttention:
    """Causal attention inside each of several whole prompts that lie one after another in a flat batch."""

    def __init__(self, memory: KvMemory, lengths: Sequence[int], tables: Sequence[Sequence[int]]) -> None:
        self._memory = memory
        self._lengths = list(lengths)
        block_tokens = memory.layout.block_tokens
        positions = torch.cat([torch.arange(length) for length in lengths])
        of_each_token = [
            torch.tensor(table).repeat_interleave(block_tokens)[:length]
            for table, length in zip(tables, lengths, strict=True)
        ]
        self._slots = Slots.on(memory.device, torch.cat(of_each_token), positions % block_tokens)
        self.positions = positions.to(memory.device)

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None = None
    ) -> torch.Tensor:
        """Query [n, heads, head_dim], K and V [n, kv_heads, head_dim] → [n, heads * head_dim]."""
        assert window is None, "sliding windows are not served yet"
        self._memory.write(layer, self._slots, key, value)
        parts = zip(*(torch.split(tensor, self._lengths) for tensor in (query, key, value)), strict=True)
        return torch.cat([_causal(*part) for part in parts])


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    query, key, value = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (query, key, value))
    out = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return out.squeeze(0).transpose(0, 1).flatten(1)


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbours in the batch that are attended in one call, padded to the longest of them."""

    members: slice
    rows: torch.Tensor  # of KvMemory.row_indices, [members, 2, kv_heads, blocks]
    mask: torch.Tensor  # [members, 1, 1, tokens]


class DecodeAttention:
    """One new token for each request, over the K and V of all its tokens so far.

    The query heads that share a K/V head become the rows of one small matrix, so K and V are never expanded.
    """

    def __init__(self, memory: KvMemory, tables: torch.Tensor, rows: torch.Tensor, positions: Sequence[int]) -> None:
        """Block `tables` [batch, n], their `memory.row_indices`, `positions` of the new tokens in rising order."""
        self._memory = memory
        block_tokens = memory.layout.block_tokens
        self.positions = torch.tensor(positions, device=memory.device)
        of_each = tables.gather(1, (self.positions // block_tokens).unsqueeze(1)).squeeze(1)
        self._slots = Slots(of_each, self.positions % block_tokens)
        used = [position // block_tokens + 1 for position in positions]
        self._groups = [self._group(members, rows, used[members.stop - 1]) for members in similar_runs(used)]

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None = None
    ) -> torch.Tensor:
        """Query [batch, heads, head_dim], K and V [batch, kv_heads, head_dim] → [batch, heads * head_dim]."""
        assert window is None, "sliding windows are not served yet"
        self._memory.write(layer, self._slots, key, value)
        heads = torch.unflatten(query, 1, (key.shape[1], -1))
        return torch.cat([self._attend(layer, group, heads[group.members]) for group in self._groups])

    def _attend(self, layer: int, group: _Group, heads: torch.Tensor) -> torch.Tensor:
        stored = self._memory.gather(layer, group.rows)
        return scaled_dot_product_attention(heads, stored[:, 0], stored[:, 1], attn_mask=group.mask).flatten(1)

    def _group(self, members: slice, rows: torch.Tensor, blocks: int) -> _Group:
        positions = self.positions[members].unsqueeze(1)
        unseen = torch.arange(blocks * self._memory.layout.block_tokens, device=positions.device) > positions
        mask = torch.zeros(unseen.shape, dtype=self._memory.blocks.dtype, device=positions.device)
        mask.masked_fill_(unseen, -torch.inf)
        return _Group(members, rows[members, ..., :blocks].contiguous(), mask[:, None, None, :])


def similar_runs(sizes: Sequence[int]) -> list[slice]:
    """Cut rising `sizes` into runs in which the largest is at most twice the smallest, so padding at most doubles."""
    runs: list[slice] = []
    start = 0
    for index, size in enumerate(sizes):
        if size > max(_ALWAYS_SIMILAR, 2 * sizes[start]):
            runs.append(slice(start, index))
            start = index
    return [*runs, slice(start, len(sizes))]
