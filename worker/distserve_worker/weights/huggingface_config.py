"""A model's configuration out of the JSON files of a Hugging Face folder."""

import json
from pathlib import Path
from typing import Any, Final

from distserve_worker.weights.config import ModelConfig, architecture_named, checked
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.rope_scaling import rope_divisors

CONFIG: Final = "config.json"
GENERATION_CONFIG: Final = "generation_config.json"


def read_huggingface_config(folder: Path) -> ModelConfig:
    """The configuration in `folder`. Raises `ModelNotFound` without config.json, `ModelInvalid` naming a bad field."""
    path = folder / CONFIG
    if not path.is_file():
        raise ModelNotFound(f"{folder}: no {CONFIG} in the folder")
    fields = _read_json(path)
    try:
        return checked(_config(fields, _eos(fields, folder / GENERATION_CONFIG), path), str(path))
    except KeyError as error:
        raise ModelInvalid(f"{path}: the field {error} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelInvalid(f"{path}: a field has the wrong type ({error})") from error


def _config(fields: dict[str, Any], eos: frozenset[int], path: Path) -> ModelConfig:
    activation = fields.get("hidden_act", "silu")
    architecture = architecture_named(fields.get("model_type", "(no model_type)"), str(path))
    if activation != "silu":
        raise ModelInvalid(f"{path}: hidden_act {activation} is not known (known: silu)")
    heads, hidden = int(fields["num_attention_heads"]), int(fields["hidden_size"])
    head_dim = int(fields.get("head_dim") or hidden // max(heads, 1))
    # transformers 5 writes rope_parameters, earlier ones rope_theta and rope_scaling
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta", fields.get("rope_theta", 10000.0)))
    return ModelConfig(
        architecture=architecture,
        layers=int(fields["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(fields.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        ffn=int(fields["intermediate_size"]),
        vocab=int(fields["vocab_size"]),
        rope_theta=theta,
        rope_divisors=rope_divisors(rope, theta, head_dim, str(path)),
        rms_eps=float(fields["rms_norm_eps"]),
        max_positions=int(fields["max_position_embeddings"]),
        tied_embeddings=bool(fields.get("tie_word_embeddings", False)),
        eos_token_ids=eos,
    )


def _eos(fields: dict[str, Any], generation: Path) -> frozenset[int]:
    """Chat models often list their end-of-turn token in generation_config.json only."""
    sources = [fields.get("eos_token_id")]
    if generation.is_file():
        sources.append(_read_json(generation).get("eos_token_id"))
    return frozenset(
        int(token) for ids in sources if ids is not None for token in (ids if isinstance(ids, list) else [ids])
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ModelInvalid(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ModelInvalid(f"{path}: not a JSON object")
    return content
