"""What the families with rotary embedding, RMS norms and gated MLPs have in common."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from distserve_worker.weights.config import Architecture, ModelConfig, activation_named, checked
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.fields import Fields
from distserve_worker.weights.rope_scaling import DEFAULT, Rope, RopeBase, kind_of, scaled_rope

_THETA: Final = 10000.0
_RMS_EPS: Final = 1e-6
_TRAINED: Final = "original_max_position_embeddings"
_PARTIAL: Final = "partial_rotary_factor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryConfig(ModelConfig):
    """A Llama or one of its relatives."""

    rope: Rope
    windows: tuple[int | None, ...]  # of each layer: tokens that a token sees, itself included; None: all
    attention_bias: bool = False
    mlp_bias: bool = False


def read_rotary(
    architecture: Architecture,
    fields: Fields,
    eos: frozenset[int],
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    windows: tuple[int | None, ...] | None = None,
    attention_bias: bool = False,
    mlp_bias: bool = False,
) -> RotaryConfig:
    """The fields that all of them have.

    `kv_heads`: when not written at all; None, as where null is written: as many as heads. `head_dim`: when not stated;
    None: the heads' share of the hidden size.
    """
    heads, hidden = fields.count("num_attention_heads", "heads"), fields.count("hidden_size", "hidden")
    usual = heads if kv_heads is None or fields.is_null("num_key_value_heads") else kv_heads
    layers = fields.count("num_hidden_layers", "layers")
    positions = fields.count("max_position_embeddings", "max_positions")
    size = fields.count("head_dim", "head_dim", head_dim or hidden // heads)
    config = RotaryConfig(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=fields.count("num_key_value_heads", "kv_heads", usual),
        head_dim=size,
        ffn=fields.count("intermediate_size", "ffn"),
        vocab=fields.count("vocab_size", "vocab"),
        max_positions=positions,
        norm_eps=fields.positive("rms_norm_eps", _RMS_EPS),
        activation=activation_named(fields.text("hidden_act", "silu"), "hidden_act", fields.where),
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        eos_token_ids=eos,
        rope=_rope(fields, size, positions),
        windows=(None,) * layers if windows is None else windows,
        attention_bias=attention_bias,
        mlp_bias=mlp_bias,
    )
    return checked_rotary(config, fields.where)


def checked_rotary(config: RotaryConfig, where: str) -> RotaryConfig:
    """`config` itself. Raises `ModelInvalid` naming a value that no model can have."""
    checked(config, where)
    rope = config.rope
    if config.head_dim % 2:
        raise ModelInvalid(f"{where}: head_dim is {config.head_dim}, rotary embedding needs an even one")
    if rope.divisors is not None and len(rope.divisors) != config.head_dim // 2:
        raise ModelInvalid(f"{where}: {len(rope.divisors)} rope factors for a head_dim of {config.head_dim}")
    for name, values in (("rope_theta", (rope.theta,)), ("rope scaling", (rope.magnitude, *(rope.divisors or ())))):
        wrong = [value for value in values if not 0.0 < value < math.inf]
        if wrong:
            raise ModelInvalid(f"{where}: the model's {name} is {wrong[0]}, it must be greater than 0")
    return config


def _rope(fields: Fields, head_dim: int, positions: int) -> Rope:
    """Transformers 5 writes rope_parameters, earlier ones rope_theta and rope_scaling, which hides the other."""
    stated = fields.mapping("rope_scaling") or fields.mapping("rope_parameters")
    theta = Fields(stated, fields.where).positive("rope_theta", fields.positive("rope_theta", _THETA))
    return scaled_rope(_with_outer(stated, fields), RopeBase(theta, head_dim, positions), fields.where)


def _with_outer(stated: Mapping[str, Any], fields: Fields) -> Mapping[str, Any]:
    """A scaling's fields may be next to it as well: there the trained length counts first, a share of heads last."""
    if kind_of(stated) == DEFAULT:
        return stated
    trained = {_TRAINED: fields.positive(_TRAINED)} if fields.has(_TRAINED) else {}
    partial = {_PARTIAL: fields.positive(_PARTIAL)} if fields.has(_PARTIAL) else {}
    return {**partial, **stated, **trained}
