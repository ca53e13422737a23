"""Between wire messages of the KV and the types of engine and transfer; no decisions."""

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import BlockRef, KvLayout, KvShard
from distserve_worker.transfer.interface import Source


def layout_message(layout: KvLayout) -> kv_pb2.KvLayout:
    """Shape of one block, for the wire."""
    return kv_pb2.KvLayout(
        layers=layout.layers,
        kv_heads=layout.kv_heads,
        head_dim=layout.head_dim,
        block_tokens=layout.block_tokens,
        dtype=layout.dtype,
    )


def layout_of(message: kv_pb2.KvLayout) -> KvLayout:
    """Shape of one block, from the wire."""
    return KvLayout(message.layers, message.kv_heads, message.head_dim, message.block_tokens, message.dtype)


def shard_message(shard: KvShard) -> kv_pb2.KvShard:
    """Layers and heads, for the wire."""
    return kv_pb2.KvShard(
        first_layer=shard.first_layer, layers=shard.layers, first_head=shard.first_head, heads=shard.heads
    )


def shard_of(message: kv_pb2.KvShard) -> KvShard:
    """Layers and heads, from the wire."""
    return KvShard(message.first_layer, message.layers, message.first_head, message.heads)


def shards_of(handle: kv_pb2.KvHandle) -> tuple[KvShard, ...]:
    """What each rank of the handle holds, from the wire."""
    return tuple(shard_of(message) for message in handle.shards)


def source_message(source: Source) -> kv_pb2.Source:
    """Where a reader finds a piece, for the wire."""
    return kv_pb2.Source(endpoint=source.endpoint, ticket=source.ticket, bytes=source.nbytes, location=source.location)


def source_of(message: kv_pb2.Source) -> Source:
    """Where to find a piece, from the wire."""
    return Source(message.endpoint, message.ticket, message.bytes, message.location)


def block_messages(blocks: tuple[BlockRef, ...]) -> list[kv_pb2.BlockRef]:
    """Blocks with their generations, for the wire."""
    return [kv_pb2.BlockRef(index=block.index, generation=block.generation) for block in blocks]


def blocks_of(handle: kv_pb2.KvHandle) -> tuple[BlockRef, ...]:
    """Blocks with their generations, from the wire."""
    return tuple(BlockRef(block.index, block.generation) for block in handle.blocks)
