"""OPT: layer norms before or after each part, learned positions, embeddings that may be of another width."""

from typing import Final

from distserve_worker.engine.models.decoder import Decoder, Entrance, Exit, Layer, NormFirst, NormLast
from distserve_worker.engine.models.ends import take_ends
from distserve_worker.engine.models.interface import Family, Place, Weights
from distserve_worker.engine.models.linear import Linear, Outputs, Storage, column_parallel, row_parallel
from distserve_worker.engine.models.mlp import take_mlp
from distserve_worker.engine.models.norms import LayerNorm, take_layer_norm
from distserve_worker.engine.models.self_attention import Heads, SelfAttention, qkv_pieces, query_columns
from distserve_worker.engine.models.vocabulary import Head, Vocabulary, take_positions
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.families.opt import OptConfig

_BASE: Final = "model."
_DECODER: Final = _BASE + "decoder."
_POSITION_OFFSET: Final = 2  # rows that OPT keeps for padding


def build(config: ModelConfig, weights: Weights, place: Place) -> Decoder:
    """The part of the model that `place` has. Raises `ModelInvalid`."""
    assert isinstance(config, OptConfig)
    embedding, head = take_ends(config, weights, place, _DECODER + "embed_tokens", config.embedding_width)
    return Decoder(
        entrance=_entrance(config, weights, place, embedding) if embedding is not None else None,
        rotary=None,
        layers=tuple(_layer(config, weights, place, index, number) for index, number in enumerate(place.shard.layers)),
        exit=_exit(config, weights, place, head) if head is not None else None,
    )


def _entrance(config: OptConfig, weights: Weights, place: Place, vocabulary: Vocabulary) -> Entrance:
    positions = _DECODER + "embed_positions"
    return Entrance(
        vocabulary,
        widen=_between_widths(config, weights, place, "project_in", config.embedding_width, config.hidden),
        positions=take_positions(weights, positions, config.max_positions, config.hidden, _POSITION_OFFSET),
    )


def _exit(config: OptConfig, weights: Weights, place: Place, head: Head) -> Exit:
    norm = _norm(config, weights, _DECODER + "final_layer_norm") if config.final_norm else None
    narrow = _between_widths(config, weights, place, "project_out", config.hidden, config.embedding_width)
    return Exit(norm, head, narrow)


def _between_widths(
    config: OptConfig, weights: Weights, place: Place, name: str, inputs: int, outputs: int
) -> Linear | None:
    """A matrix that every rank has all of, where the widths differ."""
    if config.embedding_width == config.hidden:
        return None
    return column_parallel(weights, place, (Outputs(_DECODER + name, outputs, 0, outputs),), Storage(inputs))


def _layer(config: OptConfig, weights: Weights, place: Place, index: int, number: int) -> Layer:
    prefix = f"{_DECODER}layers.{number}."
    attention = _attention(config, weights, place, index, prefix + "self_attn.")
    attention_norm = _norm(config, weights, prefix + "self_attn_layer_norm")
    mlp = take_mlp(config, weights, place, prefix + "fc1", prefix + "fc2", bias=config.bias)
    mlp_norm = _norm(config, weights, prefix + "final_layer_norm")
    if config.norm_first:
        return NormFirst(attention_norm, attention, mlp_norm, mlp)
    return NormLast(attention, attention_norm, mlp, mlp_norm)


def _attention(config: OptConfig, weights: Weights, place: Place, index: int, prefix: str) -> SelfAttention:
    pieces = qkv_pieces(config, place, [prefix + name for name in ("q_proj", "k_proj", "v_proj")])
    storage, heads = Storage(config.hidden, config.bias), len(place.shard.heads)
    return SelfAttention(
        index,
        qkv=column_parallel(weights, place, pieces, storage),
        heads=Heads(heads, heads, config.head_dim),
        output=row_parallel(weights, place, prefix + "out_proj", config.hidden, query_columns(config, place), storage),
    )


def _norm(config: OptConfig, weights: Weights, name: str) -> LayerNorm:
    return take_layer_norm(weights, name, config.hidden, config.norm_eps, learned=config.learned_norms)


FAMILY: Final = Family(build, _BASE)
