"""KV memory of a rank with contents of its own, and what a selection of it reads."""

import torch

from distserve_worker.engine.interface import KvLayout, KvShard, Region
from distserve_worker.engine.shared_memory import shared_bytes
from distserve_worker.transfer.memory.selection import Selection


def random_region(
    layout: KvLayout, blocks: int, shard: KvShard | None = None, seed: int | None = None, device: str = "cpu"
) -> Region:
    """Random bytes in `blocks` blocks; `shard` is all of `layout` unless given, and gives the layers and heads."""
    shard = shard or KvShard(0, layout.layers, 0, layout.kv_heads)
    own = KvLayout(shard.layers, shard.heads, layout.head_dim, layout.block_tokens, layout.dtype)
    memory, file = shared_bytes(blocks * own.block_bytes)
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    memory.random_(0, 256, generator=generator)
    if device == "cpu":
        return Region(shard, own, memory.view(blocks, -1), file)
    return Region(shard, own, memory.to(device).view(blocks, -1))


def content(selection: Selection) -> torch.Tensor:
    """What is selected, [blocks, layers, 2, heads, bytes of one head], found by plain indexing."""
    region, part = selection.region, selection.part
    shape = (-1, region.shard.layers, 2, region.shard.heads, region.layout.head_bytes)
    layer, head = part.first_layer - region.shard.first_layer, part.first_head - region.shard.first_head
    chosen = region.memory.view(shape)[list(selection.blocks)]
    return chosen[:, layer : layer + part.layers, :, head : head + part.heads].cpu()
