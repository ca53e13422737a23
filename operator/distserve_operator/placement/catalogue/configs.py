"""Models by the config.json of Hugging Face."""

from collections.abc import Mapping
from typing import Any, Final

from distserve_operator.placement.catalogue.building import build_shape
from distserve_operator.placement.catalogue.errors import UnsupportedConfigError
from distserve_operator.placement.model import ModelShape, WeightType

_GATED: Final = ("llama", "mistral", "qwen2", "qwen3")
_TYPES: Final[dict[str, WeightType]] = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}


def model_from_config(
    config: Mapping[str, Any], name: str | None = None, weight_type: WeightType | None = None
) -> ModelShape:
    """The model that a config.json describes: OPT, GPT-2, Llama, Mistral, Qwen2 or Qwen3.

    `name` None: the one in the configuration. `weight_type` None: its dtype, FP16 without one.
    Raises `UnsupportedConfigError`.
    """
    kind = config.get("model_type")
    stored = weight_type or _TYPES.get(str(config.get("dtype") or config.get("torch_dtype")), "FP16")
    title = name or str(config.get("_name_or_path") or kind)
    try:
        if kind == "gpt2":
            return _gpt2(config, title, stored)
        if kind == "opt":
            return _opt(config, title, stored)
        if kind in _GATED:
            return _gated(config, title, stored)
    except KeyError as error:
        raise UnsupportedConfigError(f"config.json of {title} has no field {error}") from error
    except (TypeError, ValueError) as error:
        raise UnsupportedConfigError(f"config.json of {title}: {error}") from error
    known = ", ".join(("opt", "gpt2", *_GATED))
    raise UnsupportedConfigError(f"config.json of {title} has model_type {kind!r}; known are {known}")


def _gpt2(config: Mapping[str, Any], name: str, stored: WeightType) -> ModelShape:
    return build_shape(
        name,
        stored,
        layers=int(config["n_layer"]),
        hidden=int(config["n_embd"]),
        heads=int(config["n_head"]),
        ffn=int(config.get("n_inner") or 4 * config["n_embd"]),
        vocabulary=int(config["vocab_size"]),
        positions=int(config["n_positions"]),
        gated_ffn=False,
        learned_positions=True,
        tied_embeddings=bool(config.get("tie_word_embeddings", True)),
    )


def _opt(config: Mapping[str, Any], name: str, stored: WeightType) -> ModelShape:
    return build_shape(
        name,
        stored,
        **_usual(config),
        ffn=int(config["ffn_dim"]),
        gated_ffn=False,
        learned_positions=True,
        tied_embeddings=bool(config.get("tie_word_embeddings", True)),
    )


def _gated(config: Mapping[str, Any], name: str, stored: WeightType) -> ModelShape:
    return build_shape(
        name,
        stored,
        **_usual(config),
        ffn=int(config["intermediate_size"]),
        gated_ffn=True,
        learned_positions=False,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        kv_heads=int(config.get("num_key_value_heads") or 0) or None,
        head_dim=int(config.get("head_dim") or 0) or None,
    )


def _usual(config: Mapping[str, Any]) -> dict[str, int]:
    """Fields that all families but GPT-2 call the same."""
    return {
        "layers": int(config["num_hidden_layers"]),
        "hidden": int(config["hidden_size"]),
        "heads": int(config["num_attention_heads"]),
        "vocabulary": int(config["vocab_size"]),
        "positions": int(config["max_position_embeddings"]),
    }
