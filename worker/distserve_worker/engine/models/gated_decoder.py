"""What Llama and its relatives are made of: RMS norms, rotary grouped-query attention, gated MLPs."""

from dataclasses import dataclass
from typing import Final

from distserve_worker.engine.models.decoder import Decoder, Entrance, Exit, NormFirst
from distserve_worker.engine.models.ends import take_ends
from distserve_worker.engine.models.interface import Place, Weights
from distserve_worker.engine.models.linear import Storage, column_parallel, row_parallel
from distserve_worker.engine.models.mlp import take_gated_mlp
from distserve_worker.engine.models.norms import take_heads_norm, take_rms_norm
from distserve_worker.engine.models.rotary import Rotary
from distserve_worker.engine.models.self_attention import Heads, SelfAttention, qkv_pieces, query_columns
from distserve_worker.weights.families.rotary import RotaryConfig

BASE: Final = "model."
BUFFERS: Final = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True)
class Switches:
    """In what the relatives differ."""

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    heads_norm: bool = False


def gated_decoder(config: RotaryConfig, weights: Weights, place: Place, switches: Switches) -> Decoder:
    """The part of the model that `place` has."""
    embedding, head = take_ends(config, weights, place, BASE + "embed_tokens", config.hidden)
    layers = tuple(
        _layer(config, weights, place, switches, index, number) for index, number in enumerate(place.shard.layers)
    )
    norm = take_rms_norm(weights, BASE + "norm", config.hidden, config.norm_eps) if head is not None else None
    return Decoder(
        entrance=Entrance(embedding) if embedding is not None else None,
        rotary=Rotary.of(config.rope, config.head_dim, place.device),
        layers=layers,
        exit=Exit(norm, head) if head is not None else None,
    )


def _layer(
    config: RotaryConfig, weights: Weights, place: Place, switches: Switches, index: int, number: int
) -> NormFirst:
    prefix = f"{BASE}layers.{number}."
    return NormFirst(
        attention_norm=take_rms_norm(weights, prefix + "input_layernorm", config.hidden, config.norm_eps),
        attention=_attention(config, weights, place, switches, index, number),
        mlp_norm=take_rms_norm(weights, prefix + "post_attention_layernorm", config.hidden, config.norm_eps),
        mlp=take_gated_mlp(config, weights, place, prefix + "mlp.", bias=switches.mlp_bias),
    )


def _attention(
    config: RotaryConfig, weights: Weights, place: Place, switches: Switches, index: int, number: int
) -> SelfAttention:
    prefix = f"{BASE}layers.{number}.self_attn."
    pieces = qkv_pieces(config, place, [prefix + name for name in ("q_proj", "k_proj", "v_proj")])
    output = Storage(config.heads * config.head_dim, switches.output_bias)
    return SelfAttention(
        index,
        qkv=column_parallel(weights, place, pieces, Storage(config.hidden, switches.qkv_bias)),
        heads=_heads(config, weights, place, switches, number),
        output=row_parallel(weights, place, prefix + "o_proj", config.hidden, query_columns(config, place), output),
    )


def _heads(config: RotaryConfig, weights: Weights, place: Place, switches: Switches, number: int) -> Heads:
    query, key, size = len(place.shard.heads), len(place.shard.kv_heads), config.head_dim
    norm = None
    if switches.heads_norm:
        prefix = f"{BASE}layers.{number}.self_attn."
        counts = {prefix + "q_norm": query, prefix + "k_norm": key}
        norm = take_heads_norm(weights, counts, size, config.norm_eps)
    return Heads(query, key, size, norm, config.windows[number])
