"""OPT, with the variants that its sizes have: the one of 350 million parameters normalises after each part."""

from dataclasses import dataclass
from typing import Final

from distserve_worker.weights.config import Architecture, ModelConfig, activation_named, checked, even_share
from distserve_worker.weights.fields import Fields

_EPS: Final = 1e-5  # not a field: the default of the norms that OPT was trained with


@dataclass(frozen=True, slots=True, kw_only=True)
class OptConfig(ModelConfig):
    """An OPT; with an `embedding_width` other than the hidden size, matrices lead from one to the other and back."""

    embedding_width: int
    norm_first: bool
    final_norm: bool
    bias: bool
    learned_norms: bool


def read(fields: Fields, eos: frozenset[int]) -> ModelConfig:
    """The configuration that `fields` state. Raises `ModelInvalid` naming a bad one."""
    hidden, heads = fields.count("hidden_size", "hidden"), fields.count("num_attention_heads", "heads")
    norm_first = fields.flag("do_layer_norm_before", True)
    config = OptConfig(
        architecture=Architecture.OPT,
        layers=fields.count("num_hidden_layers", "layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=even_share(hidden, heads, fields.where),
        ffn=fields.count("ffn_dim", "ffn"),
        vocab=fields.count("vocab_size", "vocab"),
        max_positions=fields.count("max_position_embeddings", "max_positions"),
        norm_eps=_EPS,
        activation=activation_named(fields.text("activation_function", "relu"), "activation_function", fields.where),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        eos_token_ids=eos,
        embedding_width=fields.count("word_embed_proj_dim", "hidden", hidden),
        norm_first=norm_first,
        # checkpoints fine-tuned before transformers 4.20 lack it
        final_norm=norm_first and not fields.flag("_remove_final_layer_norm", False),
        bias=fields.flag("enable_bias", True),
        learned_norms=fields.flag("layer_norm_elementwise_affine", True),
    )
    return checked(config, fields.where)
