"""A model's configuration out of the JSON files of a Hugging Face folder."""

import json
from pathlib import Path
from typing import Final

from distserve_worker.weights.config import ModelConfig, architecture_named
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.families.registry import READERS
from distserve_worker.weights.fields import Fields
from distserve_worker.weights.files import is_there

CONFIG: Final = "config.json"
GENERATION_CONFIG: Final = "generation_config.json"
_EOS: Final = "eos_token_id"


def read_huggingface_config(folder: Path) -> ModelConfig:
    """The configuration in `folder`. Raises `ModelNotFound` without config.json, `ModelInvalid` naming a bad field."""
    path = folder / CONFIG
    if not is_there(path):
        raise ModelNotFound(f"{folder}: no {CONFIG} in the folder")
    fields = _read(path)
    architecture = architecture_named(fields.text("model_type", "(no model_type)"), fields.where)
    _require_plain_weights(fields)
    return READERS[architecture](fields, _eos(fields, folder / GENERATION_CONFIG))


def _require_plain_weights(fields: Fields) -> None:
    quantization = fields.mapping("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unnamed")
        raise ModelInvalid(f"{fields.where}: weights are quantized ({method}), only plain ones can be read: give those")


def _eos(fields: Fields, generation: Path) -> frozenset[int]:
    """Chat models often list their end-of-turn token in generation_config.json only."""
    ends = fields.tokens(_EOS)
    return ends | _read(generation).tokens(_EOS) if is_there(generation) else ends


def _read(path: Path) -> Fields:
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ModelInvalid(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ModelInvalid(f"{path}: not a JSON object")
    return Fields(content, str(path))
