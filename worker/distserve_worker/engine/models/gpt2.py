"""GPT-2: layer norms, learned positions, matrices stored with inputs first, queries, keys and values in one of them."""

from typing import Final

from distserve_worker.engine.models.decoder import Decoder, Entrance, Exit, NormFirst
from distserve_worker.engine.models.ends import take_ends
from distserve_worker.engine.models.interface import Family, Place, Weights
from distserve_worker.engine.models.linear import Outputs, Storage, column_parallel, row_parallel
from distserve_worker.engine.models.mlp import take_mlp
from distserve_worker.engine.models.norms import take_layer_norm
from distserve_worker.engine.models.self_attention import Heads, SelfAttention, query_columns
from distserve_worker.engine.models.vocabulary import take_positions
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.families.gpt2 import Gpt2Config

_BASE: Final = "transformer."


def build(config: ModelConfig, weights: Weights, place: Place) -> Decoder:
    """The part of the model that `place` has. Raises `ModelInvalid`."""
    assert isinstance(config, Gpt2Config)
    embedding, head = take_ends(config, weights, place, _BASE + "wte", config.hidden)
    entrance = None
    if embedding is not None:
        positions = take_positions(weights, _BASE + "wpe", config.max_positions, config.hidden)
        entrance = Entrance(embedding, positions=positions)
    layers = tuple(_layer(config, weights, place, index, number) for index, number in enumerate(place.shard.layers))
    norm = take_layer_norm(weights, _BASE + "ln_f", config.hidden, config.norm_eps) if head is not None else None
    return Decoder(entrance, None, layers, Exit(norm, head) if head is not None else None)


def _layer(config: Gpt2Config, weights: Weights, place: Place, index: int, number: int) -> NormFirst:
    prefix = f"{_BASE}h.{number}."
    return NormFirst(
        attention_norm=take_layer_norm(weights, prefix + "ln_1", config.hidden, config.norm_eps),
        attention=_attention(config, weights, place, index, number),
        mlp_norm=take_layer_norm(weights, prefix + "ln_2", config.hidden, config.norm_eps),
        mlp=take_mlp(config, weights, place, prefix + "mlp.c_fc", prefix + "mlp.c_proj", bias=True, transposed=True),
    )


def _attention(config: Gpt2Config, weights: Weights, place: Place, index: int, number: int) -> SelfAttention:
    prefix = f"{_BASE}h.{number}.attn."
    mine, storage = query_columns(config, place), Storage(config.hidden, bias=True, transposed=True)
    pieces = [
        Outputs(prefix + "c_attn", 3 * config.hidden, first + mine.start, first + mine.stop)
        for first in (0, config.hidden, 2 * config.hidden)
    ]
    factor = 1.0 if config.scaled_by_head else config.head_dim**0.5
    if config.scaled_by_layer:
        factor /= number + 1
    heads = len(place.shard.heads)
    return SelfAttention(
        index,
        qkv=column_parallel(weights, place, pieces, storage),
        heads=Heads(heads, heads, config.head_dim, query_factor=factor),
        output=row_parallel(weights, place, prefix + "c_proj", config.hidden, mine, storage),
    )


# early files keep the causal mask of each layer
FAMILY: Final = Family(build, _BASE, buffers=(".attn.bias", ".attn.masked_bias"))
