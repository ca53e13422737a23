"""Shards of every rank of an instance, as plain numbers."""

from distserve_worker.engine.interface import KvShard


def shards_of(layers: int, kv_heads: int, tp: int, pp: int) -> tuple[KvShard, ...]:
    """`pp` stages of `tp` ranks; with more ranks than KV heads, neighbours hold the same head."""
    shards = []
    for stage in range(pp):
        first, end = stage * layers // pp, (stage + 1) * layers // pp
        for rank in range(tp):
            each = max(1, kv_heads // tp)
            head = rank * kv_heads // tp
            shards.append(KvShard(first, end - first, head, each))
    return tuple(shards)
