"""GPT-2."""

from dataclasses import dataclass
from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig, activation_named, checked, even_share
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.fields import Fields

_EPS: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpt2Config(ModelConfig):
    """A GPT-2; attention scores are usually scaled by the size of a head, and not by the number of the layer."""

    scaled_by_head: bool
    scaled_by_layer: bool


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    if fields.flag("add_cross_attention", False):
        raise ModelInvalid(f"{fields.where}: add_cross_attention is true, only decoders alone can be served")
    hidden, heads = fields.count("n_embd", "hidden"), fields.count("n_head", "heads")
    config = Gpt2Config(
        architecture=Architecture.GPT2,
        layers=fields.count("n_layer", "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=even_share(hidden, heads, fields.where),
        ffn=fields.count("n_inner", "ffn", 4 * hidden),
        vocab=fields.count("vocab_size", "vocab"),
        max_positions=fields.count("n_positions", "max_positions"),
        norm_eps=fields.positive("layer_norm_epsilon", _EPS),
        activation=activation_named(
            fields.text("activation_function", "gelu_new"), "activation_function", fields.where
        ),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        eos_token_ids=eos,
        scaled_by_head=fields.flag("scale_attn_weights", True),
        scaled_by_layer=fields.flag("scale_attn_by_inverse_layer_idx", False),
    )
    return checked(config, fields.where)
