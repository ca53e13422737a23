"""Attention of one step: stores the new K and V and attends over what each request may see.

K and V are never expanded to the number of query heads: those that share a K/V head are a dimension of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention

from distserve_worker.engine.execution.batch import Batch, Prompt, Running
from distserve_worker.engine.execution.portions import TILE
from distserve_worker.engine.execution.tables import similar_runs
from distserve_worker.engine.execution.uploading import uploaded
from distserve_worker.engine.kv_memory import KvMemory, Slots

_ALWAYS_SIMILAR: Final = 8  # blocks: below it padding costs less than another call


class StepAttention:
    """The prompts of a batch one after another, then its running requests: the order of their tokens in the batch."""

    def __init__(
        self, memory: KvMemory, batch: Batch, tables: torch.Tensor | None, gathered_blocks: int | None = None
    ) -> None:
        """`tables`: block tables of the running requests, [requests, blocks]; `gathered_blocks`: see `StepBounds`."""
        self._memory = memory
        self._parts: list[_Prompt | _Running] = [_Prompt(memory, prompt) for prompt in batch.prompts]
        if batch.running is not None:
            assert tables is not None, "running requests have tables"
            self._parts.append(_Running(memory, batch.running, tables, gathered_blocks or memory.count))
        self._sizes = [len(part.positions) for part in self._parts]
        self.positions = torch.cat([part.positions for part in self._parts])
        blocks = torch.cat([part.blocks for part in self._parts])
        self._slots = Slots(blocks, self.positions % memory.layout.block_tokens)

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None = None
    ) -> torch.Tensor:
        """Query [n, heads, head_dim], K and V [n, kv_heads, head_dim] of n new tokens -> [n, heads * head_dim].

        `window`: a token sees no more than so many tokens, itself included; None: all before it.
        """
        self._memory.write(layer, self._slots, key, value)
        if len(self._parts) == 1:
            return self._parts[0].attend(layer, query, key, value, window)
        queries, keys, values = (torch.split(tensor, self._sizes) for tensor in (query, key, value))
        own = zip(self._parts, queries, keys, values, strict=True)
        return torch.cat([part.attend(layer, q, k, v, window) for part, q, k, v in own])


class _Prompt:
    """New tokens of one request, after those whose K and V are stored already."""

    def __init__(self, memory: KvMemory, prompt: Prompt) -> None:
        self._memory = memory
        self._start, self._end = prompt.start, prompt.start + len(prompt.tokens)
        used = -(-self._end // memory.layout.block_tokens)
        self._table = uploaded(prompt.table[:used], memory.device)
        self.positions = torch.arange(self._start, self._end, device=memory.device)
        self.blocks = self._table[self.positions // memory.layout.block_tokens]
        self._rows: torch.Tensor | None = None

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None
    ) -> torch.Tensor:
        """As `StepAttention`, K and V being stored already."""
        heads = torch.unflatten(query, 1, (key.shape[1], -1)).permute(1, 2, 0, 3)  # [kv_heads, group, n, head_dim]
        if self._start == 0:
            keys, values = key.transpose(0, 1), value.transpose(0, 1)
            if window is None or window >= self._end:
                return _joined(_attended(heads, keys, values, causal=True))
        else:
            stored = self._memory.gather(layer, self._stored_rows())[0, :, :, : self._end]
            keys, values = stored[0], stored[1]
        return _joined(torch.cat([self._tile(heads, keys, values, at, window) for at in self._tiles()], dim=2))

    def _tiles(self) -> range:
        return range(self._start, self._end, TILE)

    def _tile(
        self, heads: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, window: int | None
    ) -> torch.Tensor:
        """The new tokens from position `start` on, over what any of them sees."""
        stop = min(start + TILE, self._end)
        first = 0 if window is None else max(0, start - window + 1)
        positions = torch.arange(start, stop, device=heads.device).unsqueeze(1)
        mask = _mask(positions, torch.arange(first, stop, device=heads.device), window, heads.dtype)
        own = heads[:, :, start - self._start : stop - self._start]
        return _attended(own, keys[:, first:stop], values[:, first:stop], mask)

    def _stored_rows(self) -> torch.Tensor:
        if self._rows is None:
            self._rows = self._memory.row_indices(self._table.unsqueeze(0))
        return self._rows


def _attended(
    heads: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Query [kv_heads, group, n, head_dim], K and V [kv_heads, m, head_dim] -> as the query."""
    keys, values = (tensor.unsqueeze(1).expand(-1, heads.shape[1], -1, -1) for tensor in (keys, values))
    return scaled_dot_product_attention(heads, keys, values, attn_mask=mask, is_causal=causal)


def _joined(heads: torch.Tensor) -> torch.Tensor:
    """[kv_heads, group, n, head_dim] -> [n, heads * head_dim]."""
    return heads.permute(2, 0, 1, 3).flatten(1)


def _mask(positions: torch.Tensor, tokens: torch.Tensor, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """0 where a token at one of the `positions` [..., 1] sees one of the `tokens`, else -inf."""
    hidden = tokens > positions
    if window is not None:
        hidden |= tokens <= positions - window
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbours in the batch that are attended in one call, padded to the longest of them."""

    members: slice
    rows: torch.Tensor  # of KvMemory.row_indices, [members, 2, kv_heads, blocks]
    tokens: int


class _Running:
    """One new token for each request, over the K and V of all its tokens so far."""

    def __init__(self, memory: KvMemory, running: Running, tables: torch.Tensor, gathered_blocks: int) -> None:
        self._memory = memory
        size = memory.layout.block_tokens
        self.positions = uploaded(running.positions, memory.device)
        self.blocks = tables.gather(1, (self.positions // size).unsqueeze(1)).squeeze(1)
        used = [position // size + 1 for position in running.positions]
        # Blocks that requests share are copied for each of them, so a call might copy many times what is stored.
        groups = similar_runs(used, _ALWAYS_SIMILAR, gathered_blocks)
        self._groups = [self._group(members, tables, used) for members in groups]
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,  # noqa: ARG002 - it is stored already
        window: int | None,
    ) -> torch.Tensor:
        """As `StepAttention`, K and V being stored already."""
        heads = torch.unflatten(query, 1, (key.shape[1], -1))
        return torch.cat([self._attend(layer, group, heads[group.members], window) for group in self._groups])

    def _attend(self, layer: int, group: _Group, heads: torch.Tensor, window: int | None) -> torch.Tensor:
        stored = self._memory.gather(layer, group.rows)
        mask = self._mask(group, window, heads.dtype)
        return scaled_dot_product_attention(heads, stored[:, 0], stored[:, 1], attn_mask=mask).flatten(1)

    def _group(self, members: slice, tables: torch.Tensor, used: Sequence[int]) -> _Group:
        blocks = used[members.stop - 1]
        rows = self._memory.row_indices(tables[members, :blocks])
        return _Group(members, rows, blocks * self._memory.layout.block_tokens)

    def _mask(self, group: _Group, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """For [members, kv_heads, group, tokens]."""
        key = (group.members.start, window)
        if key not in self._masks:
            positions = self.positions[group.members].unsqueeze(1)
            tokens = torch.arange(group.tokens, device=positions.device)
            self._masks[key] = _mask(positions, tokens, window, dtype)[:, None, None, :]
        return self._masks[key]
