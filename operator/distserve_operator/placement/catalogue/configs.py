"""Models by the config.json of Hugging Face."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from distserve_operator.placement.catalogue.building import build_shape
from distserve_operator.placement.catalogue.config_fields import ConfigFields
from distserve_operator.placement.catalogue.errors import UnsupportedConfigError
from distserve_operator.placement.model import ModelShape, WeightType

_TYPES: Final[dict[str, WeightType]] = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}


def model_from_config(
    config: Mapping[str, Any], name: str | None = None, weight_type: WeightType | None = None
) -> ModelShape:
    """The model that a config.json describes: OPT, GPT-2, Llama, Mistral, Qwen2 or Qwen3.

    `name` None: the one in the configuration. `weight_type` None: its dtype, FP16 without one.
    Raises `UnsupportedConfigError`.
    """
    kind = str(config.get("model_type"))
    stored = weight_type or _TYPES.get(str(config.get("dtype") or config.get("torch_dtype")), "FP16")
    title = name or str(config.get("_name_or_path") or kind)
    read = _FAMILIES.get(kind)
    if read is None:
        known = ", ".join(_FAMILIES)
        raise UnsupportedConfigError(f"config.json of {title} has model_type {kind!r:.60}; known are {known}")
    fields = ConfigFields(config)
    try:
        fields.refuse_experts()
        return read(fields, title, stored)
    except ValueError as error:
        raise UnsupportedConfigError(f"config.json of {title} {error}") from error


def _gpt2(fields: ConfigFields, name: str, stored: WeightType) -> ModelShape:
    hidden = fields.count("n_embd")
    return build_shape(
        name,
        stored,
        layers=fields.count("n_layer"),
        hidden=hidden,
        heads=fields.heads("n_head", "n_embd"),
        ffn=fields.optional("n_inner") or 4 * hidden,
        vocabulary=fields.count("vocab_size"),
        positions=fields.count("n_positions"),
        gated_ffn=False,
        learned_positions=True,
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
    )


def _opt(fields: ConfigFields, name: str, stored: WeightType) -> ModelShape:
    return build_shape(
        name,
        stored,
        **_usual(fields),
        ffn=fields.count("ffn_dim"),
        gated_ffn=False,
        learned_positions=True,
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
    )


def _gated(
    fields: ConfigFields, name: str, stored: WeightType, *, kv_heads: int | None = None, head_dim: int | None = None
) -> ModelShape:
    """`kv_heads` and `head_dim` are those of a configuration without these fields, as transformers has them."""
    head_dim = fields.optional("head_dim") or head_dim
    usual = _usual(fields, head_dim)
    return build_shape(
        name,
        stored,
        **usual,
        ffn=fields.count("intermediate_size"),
        gated_ffn=True,
        learned_positions=False,
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        kv_heads=fields.kv_heads(usual["heads"], kv_heads),
        head_dim=head_dim,
    )


def _usual(fields: ConfigFields, head_dim: int | None = None) -> dict[str, int]:
    """Fields that all families but GPT-2 call the same."""
    return {
        "layers": fields.count("num_hidden_layers"),
        "hidden": fields.count("hidden_size"),
        "heads": fields.heads("num_attention_heads", "hidden_size", head_dim),
        "vocabulary": fields.count("vocab_size"),
        "positions": fields.count("max_position_embeddings"),
    }


_FAMILIES: Final[dict[str, Callable[[ConfigFields, str, WeightType], ModelShape]]] = {
    "opt": _opt,
    "gpt2": _gpt2,
    "llama": _gated,
    "mistral": partial(_gated, kv_heads=8),
    "qwen2": partial(_gated, kv_heads=32),
    "qwen3": partial(_gated, kv_heads=32, head_dim=128),
}
