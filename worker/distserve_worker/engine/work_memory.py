"""How much memory the largest step takes on a GPU beside weights and KV: arithmetic over the widths of a model."""

from typing import Final

from distserve_worker.engine.blueprint import Blueprint, EngineConfig
from distserve_worker.engine.interface import ITEM_BYTES
from distserve_worker.engine.parallel import Shard
from distserve_worker.engine.scheduling.rules import PromptRules
from distserve_worker.weights.config import ModelConfig

_BESIDES: Final = 1 << 30  # buffers of NCCL and cuBLAS, kernels, and what torch's allocator holds in pieces
# KV on its way between GPUs: what transports hold beside the cache, 8 chunks of 64 MiB at once in each direction.
_STAGED: Final = 2 * 8 * (64 << 20)
_SCORE_BYTES: Final = 4 * 4  # logits in FP32, as ranks have gathered them, adjusted, and as probabilities
# Copies of a token's hidden state: what a layer adds to, its norm (computed in FP32), what comes out, what is sent on.
_HIDDEN_COPIES: Final = 6
_INDEX_BYTES: Final = 8
_MASKS: Final = 2  # of layers with a window, and of those without


def work_bytes(blueprint: Blueprint, rank: int) -> int:
    """Bytes on the GPU of `rank`."""
    config, model, shard = blueprint.config, blueprint.model, blueprint.shard(rank)
    item = ITEM_BYTES[blueprint.layout.dtype]
    layer = _HIDDEN_COPIES * model.hidden + _layer_items(model, shard)
    staged = 0 if config.role == "colocated" else _STAGED
    scores = _most_rows(config) * model.vocab * _SCORE_BYTES if shard.is_last else 0
    converted = _largest_matrix_items(model, shard) * item if config.dtype == "INT8" else 0
    found = gathered_bytes(blueprint, rank) + _lookup_bytes(blueprint, shard)
    return (
        most_tokens(config, blueprint.max_model_length) * layer * item + found + scores + converted + staged + _BESIDES
    )


def gathered_bytes(blueprint: Blueprint, rank: int) -> int:
    """Bytes of KV that attention copies at once: no more than one layer of the cache, whoever shares blocks of it."""
    return blueprint.rank_cache_bytes(rank) // len(blueprint.shard(rank).layers)


def most_tokens(config: EngineConfig, max_model_length: int) -> int:
    """New tokens of one step: L_m, or those of one longer prompt alone where prompts are not cut; or a decode batch."""
    if config.role == "decode":
        return config.max_running
    rules = PromptRules(config.max_batch_tokens, config.chunk_tokens)
    prompts = rules.step_tokens if rules.cuts else max(rules.step_tokens, max_model_length)
    return prompts if config.role == "prefill" else max(prompts, config.max_running)


def _lookup_bytes(blueprint: Blueprint, shard: Shard) -> int:
    """Where the KV of running requests is, and which of it each sees: kept for a step, for every request by itself."""
    if blueprint.config.role == "prefill":
        return 0
    layout = blueprint.layout
    blocks = blueprint.config.max_running * -(-blueprint.max_model_length // layout.block_tokens)
    tables = 3 * _INDEX_BYTES  # twice as wide as the longest at most, and multiplied
    rows = 2 * len(shard.kv_heads) * _INDEX_BYTES
    masks = layout.block_tokens * (_MASKS * ITEM_BYTES[layout.dtype] + 1)
    return blocks * (tables + rows + masks)


def _most_rows(config: EngineConfig) -> int:
    """Requests that get a token in one step."""
    prompts = min(config.max_batch_tokens, config.max_waiting)
    match config.role:
        case "prefill":
            return prompts
        case "decode":
            return config.max_running
        case "colocated":
            return max(prompts, config.max_running)


def _layer_items(model: ModelConfig, shard: Shard) -> int:
    """What a rank computes for one token inside a layer and holds at once: in attention, or in the MLP."""
    query, key = len(shard.heads) * model.head_dim, len(shard.kv_heads) * model.head_dim
    attention = (query + 2 * key) + 3 * (query + key) + 2 * query  # QKV, while they are turned, what heads say
    return max(attention, 3 * len(shard.part(model.ffn)))  # gate, up, and the activated gate


def _largest_matrix_items(model: ModelConfig, shard: Shard) -> int:
    """Of a layer; one in INT8 is converted as a whole before it is used."""
    qkv = (len(shard.heads) + 2 * len(shard.kv_heads)) * model.head_dim
    return model.hidden * max(qkv, 2 * len(shard.part(model.ffn)))
