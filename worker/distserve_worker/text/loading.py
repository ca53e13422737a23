"""Reads a model's tokenizer and chat template from a GGUF file or a Hugging Face folder."""

import json
from pathlib import Path
from typing import Any

import tokenizers

from distserve_worker.text import gguf_vocabulary
from distserve_worker.text.chat_template import ChatTemplate
from distserve_worker.text.tokenizer import ModelText, Tokenizer
from distserve_worker.weights.gguf_config import config_of_gguf
from distserve_worker.weights.gguf_header import read_gguf_header
from distserve_worker.weights.huggingface_config import read_huggingface_config


class TokenizerNotFoundError(ValueError):
    """The model's files hold no tokenizer; the message says which file is missing."""


class DamagedTokenizerError(ValueError):
    """The tokenizer's file cannot be read."""


def load_text(path: Path) -> ModelText:
    """Read `path`, a `.gguf` file or a folder with `tokenizer.json`.

    Raises `ModelNotFound`, `ModelInvalid`, or a `ValueError` that names what is missing, damaged or not supported.
    """
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def _from_gguf(path: Path) -> ModelText:
    header = read_gguf_header(path)
    metadata = header.metadata
    backend = gguf_vocabulary.build_tokenizer(metadata)
    source = metadata.get("tokenizer.chat_template")
    bos = gguf_vocabulary.token_text(metadata, "bos_token_id")
    eos = gguf_vocabulary.token_text(metadata, "eos_token_id")
    template = None if source is None else ChatTemplate(str(source), bos, eos)
    return ModelText(Tokenizer.of(backend, config_of_gguf(header)), template)


def _from_folder(folder: Path) -> ModelText:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise TokenizerNotFoundError(f"{file} does not exist: the model folder needs a fast tokenizer")
    backend = _read_tokenizer(file)
    settings = _json(folder / "tokenizer_config.json")
    source = _template_source(folder, settings)
    bos, eos = _token_text(settings.get("bos_token")), _token_text(settings.get("eos_token"))
    template = None if source is None else ChatTemplate(source, bos, eos)
    return ModelText(Tokenizer.of(backend, read_huggingface_config(folder)), template)


def _read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        raise DamagedTokenizerError(f"{file}: {error}") from error


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = settings.get("chat_template")
    if isinstance(source, list):  # several named templates
        return next((str(named["template"]) for named in source if named.get("name") == "default"), None)
    return None if source is None else str(source)


def _token_text(token: str | dict[str, Any] | None) -> str:
    if isinstance(token, dict):
        return str(token["content"])
    return token or ""


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
