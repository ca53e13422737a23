"""Attention of one step: stores the new K and V and attends over what each request may see."""

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

from distserve_worker.engine.kv_memory import KvMemory


class PrefillAttention:
    """Causal attention inside each of several whole prompts that lie one after another in a flat batch."""

    def __init__(self, memory: KvMemory, lengths: Sequence[int], tables: Sequence[Sequence[int]]) -> None:
        self._memory = memory
        self._lengths = list(lengths)
        block_tokens = memory.layout.block_tokens
        positions = torch.cat([torch.arange(length) for length in lengths])
        blocks = torch.cat(
            [
                torch.tensor(table).repeat_interleave(block_tokens)[:length]
                for table, length in zip(tables, lengths, strict=True)
            ]
        )
        self._slots = (blocks, positions % block_tokens)
        self.positions = positions

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Query [n, heads, head_dim], K and V [n, kv_heads, head_dim] → [n, heads * head_dim]."""
        self._memory.write(layer, self._slots, key, value)
        parts = zip(*(torch.split(tensor, self._lengths) for tensor in (query, key, value)), strict=True)
        return torch.cat([_causal(*part) for part in parts])


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    query, key, value = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (query, key, value))
    out = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return out.squeeze(0).transpose(0, 1).flatten(1)


class DecodeAttention:
    """One new token for each request, over the K and V of all its tokens so far.

    The query heads that share a K/V head become the rows of one small matrix, so K and V are never expanded.
    """

    def __init__(self, memory: KvMemory, rows: torch.Tensor, tables: torch.Tensor, positions: torch.Tensor) -> None:
        """`rows` of `memory.row_indices(tables)`, block `tables` [batch, n], `positions` [batch] of the new tokens."""
        self._memory = memory
        block_tokens = memory.layout.block_tokens
        used = int(positions.max()) // block_tokens + 1
        self._rows = rows[..., :used]
        blocks = tables.gather(1, (positions // block_tokens).unsqueeze(1)).squeeze(1)
        self._slots = (blocks, positions % block_tokens)
        hidden = torch.arange(used * block_tokens) > positions.unsqueeze(1)
        mask = torch.zeros(hidden.shape, dtype=memory.blocks.dtype).masked_fill_(hidden, -torch.inf)
        self._mask = mask[:, None, None, :]
        self.positions = positions

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Query [batch, heads, head_dim], K and V [batch, kv_heads, head_dim] → [batch, heads * head_dim]."""
        self._memory.write(layer, self._slots, key, value)
        stored = self._memory.gather(layer, self._rows)
        grouped = torch.unflatten(query, 1, (key.shape[1], -1))
        out = scaled_dot_product_attention(grouped, stored[:, 0], stored[:, 1], attn_mask=self._mask)
        return out.flatten(1)
