"""How much memory the largest step takes beside weights and KV: arithmetic over the widths of a model."""

from typing import Final

from distserve_proto.contract import SCORE_BYTES
from distserve_worker.engine.blueprint import Blueprint, EngineConfig, kv_shard, rank_layout
from distserve_worker.engine.execution.portions import TILE, StepBounds
from distserve_worker.engine.interface import CHUNK_BYTES, ITEM_BYTES, MOST_STAGED
from distserve_worker.engine.parallel import Shard
from distserve_worker.engine.scheduling.rules import PromptRules
from distserve_worker.weights.config import ModelConfig

_BESIDES: Final = 1 << 30  # buffers of NCCL and cuBLAS, kernels, and what torch's allocator holds in pieces
# KV on its way between GPUs: what a rank sends, and what its readers stage there; who reads has half of that.
_STAGED: Final = 2 * MOST_STAGED * CHUNK_BYTES
# Copies of a token's hidden state: what a layer adds to, its norm (computed in FP32), what comes out, what is sent on.
_HIDDEN_COPIES: Final = 6
_INDEX_BYTES: Final = 8
_MASKS: Final = 2  # of layers with a window, and of those without
# On a CPU, where a pod's limit is for all that its process does: so little that it is a part of `PROCESS_BYTES`, unless
# the least portion takes more, which keeps a core as busy as a whole prompt does.
_PORTION_BYTES: Final = 16 << 20
_LEAST_PORTION: Final = 256  # tokens
_GATHERED_BYTES: Final = 16 << 20


def work_bytes(blueprint: Blueprint, rank: int) -> int:
    """Bytes on the GPU of `rank`; on a CPU in its process, beside what that has when it is loaded."""
    config, model, shard = blueprint.config, blueprint.model, blueprint.shard(rank)
    item = ITEM_BYTES[blueprint.layout.dtype]
    computed = _tokens_at_once(blueprint, rank) * _token_items(model, shard) * item
    sent = _sent_tokens(blueprint, shard) * model.hidden * item
    found = gathered_bytes(blueprint, rank) + _lookup_bytes(blueprint, shard) + _tile_bytes(blueprint)
    scores = _most_rows(config) * model.vocab * SCORE_BYTES if shard.is_last else 0
    converted = _largest_matrix_items(model, shard) * item if config.dtype == "INT8" else 0
    return computed + sent + found + scores + converted + _beside_steps(config)


def step_bounds(blueprint: Blueprint, rank: int) -> StepBounds:
    """What a rank does at once: a GPU has room for whole steps, which `work_bytes` counts; the pod of a CPU has not."""
    if blueprint.config.device == "cuda":
        return StepBounds()
    token = _token_items(blueprint.model, blueprint.shard(rank)) * ITEM_BYTES[blueprint.layout.dtype]
    return StepBounds(
        tokens=max(_LEAST_PORTION, _PORTION_BYTES // token),
        gathered_blocks=max(1, min(blueprint.blocks, _GATHERED_BYTES // _layer_block_bytes(blueprint, rank))),
    )


def gathered_bytes(blueprint: Blueprint, rank: int) -> int:
    """Bytes of KV that attention copies at once: of one layer, no more than the cache has, whoever shares blocks of it.

    A single request is copied as a whole.
    """
    most = step_bounds(blueprint, rank).gathered_blocks or blueprint.blocks
    longest = -(-blueprint.max_model_length // blueprint.layout.block_tokens)
    return min(blueprint.blocks, max(most, longest)) * _layer_block_bytes(blueprint, rank)


def _layer_block_bytes(blueprint: Blueprint, rank: int) -> int:
    shard = kv_shard(blueprint.shard(rank))
    return rank_layout(blueprint.layout, shard).block_bytes // shard.layers


def _tokens_at_once(blueprint: Blueprint, rank: int) -> int:
    config = blueprint.config
    most, portion = most_tokens(config, blueprint.max_model_length), step_bounds(blueprint, rank).tokens
    if portion is None:
        return most
    return min(most, portion + (0 if config.role == "prefill" else config.max_running))


def _sent_tokens(blueprint: Blueprint, shard: Shard) -> int:
    """Tokens whose hidden states wait between stages: of whole steps, as many as are on their way."""
    pp = shard.grid.pp
    portioned = 0 if blueprint.config.device == "cuda" else 2  # what comes out in portions, and then as one
    copies = (0 if shard.is_first else pp) + (0 if shard.is_last else pp + portioned)
    return copies * most_tokens(blueprint.config, blueprint.max_model_length)


def _beside_steps(config: EngineConfig) -> int:
    if config.device != "cuda":
        return 0
    return _BESIDES + (0 if config.role == "colocated" else _STAGED)


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


def _tile_bytes(blueprint: Blueprint) -> int:
    """Which tokens the new ones of a prompt see, as numbers and before that as flags."""
    if blueprint.config.role == "decode":
        return 0
    return TILE * blueprint.max_model_length * (ITEM_BYTES[blueprint.layout.dtype] + _MASKS)


def _most_rows(config: EngineConfig) -> int:
    """Requests that get a token in one step."""
    return min(config.max_running, config.max_batch_tokens) if config.role == "prefill" else config.max_running


def _token_items(model: ModelConfig, shard: Shard) -> int:
    """What a rank computes for one token and holds at once: hidden states, and inside attention or the MLP."""
    query, key = len(shard.heads) * model.head_dim, len(shard.kv_heads) * model.head_dim
    attention = (query + 2 * key) + 3 * (query + key) + 2 * query  # QKV, while they are turned, what heads say
    mlp = 3 * len(shard.part(model.ffn))  # gate, up, and the activated gate
    return _HIDDEN_COPIES * model.hidden + max(attention, mlp)


def _largest_matrix_items(model: ModelConfig, shard: Shard) -> int:
    """Of a layer; one in INT8 is converted as a whole before it is used."""
    qkv = (len(shard.heads) + 2 * len(shard.kv_heads)) * model.head_dim
    return model.hidden * max(qkv, 2 * len(shard.part(model.ffn)))
