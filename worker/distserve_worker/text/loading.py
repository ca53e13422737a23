"""Reads a model's tokenizer and chat template from a GGUF file or a Hugging Face folder."""

import json
from pathlib import Path
from typing import Any, Final

import tokenizers

from distserve_worker.text import gguf_vocabulary
from distserve_worker.text.chat_template import ChatTemplate
from distserve_worker.text.tokenizer import ModelText, Tokenizer
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.files import is_there
from distserve_worker.weights.gguf_config import config_of_gguf
from distserve_worker.weights.gguf_header import read_gguf_header
from distserve_worker.weights.huggingface_config import read_huggingface_config

# What the tokenizers library raises where its own code gives up: no Exception, and of a type that cannot be imported.
_PANIC: Final = "PanicException"


class DamagedTokenizerError(ValueError):
    """A file of the tokenizer cannot be read."""


def load_text(path: Path) -> ModelText:
    """Read `path`, a `.gguf` file or a folder with `tokenizer.json`.

    Raises `ModelNotFound`, `ModelInvalid` or OSError, whatever is missing, damaged or not supported.
    """
    try:
        return _from_folder(path) if path.is_dir() else _from_gguf(path)
    except (ModelNotFound, ModelInvalid, OSError):
        raise
    except ValueError as error:  # ours, and those of the libraries that read a value
        raise ModelInvalid(f"{path}: {error}") from error
    except BaseException as error:  # a damaged file can meet any assumption of the code that reads it
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise ModelInvalid(f"{path}: the tokenizer cannot be built ({type(error).__name__}: {error})") from error


def _from_gguf(path: Path) -> ModelText:
    header = read_gguf_header(path)
    metadata = header.metadata
    backend = gguf_vocabulary.build_tokenizer(metadata)
    source = _template_text(metadata.get("tokenizer.chat_template"))
    bos = gguf_vocabulary.token_text(metadata, "bos_token_id")
    eos = gguf_vocabulary.token_text(metadata, "eos_token_id")
    template = None if source is None else ChatTemplate(source, bos, eos)
    return ModelText(Tokenizer.of(backend, config_of_gguf(header)), template)


def _from_folder(folder: Path) -> ModelText:
    file = folder / "tokenizer.json"
    if not is_there(file):
        raise ModelInvalid(f"{file} does not exist: the model folder needs a fast tokenizer")
    backend = _read_tokenizer(file)
    settings = _settings(folder / "tokenizer_config.json")
    source = _template_source(folder, settings)
    bos, eos = _token_text(settings, "bos_token"), _token_text(settings, "eos_token")
    template = None if source is None else ChatTemplate(source, bos, eos)
    return ModelText(Tokenizer.of(backend, read_huggingface_config(folder)), template)


def _read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_buffer(file.read_bytes())
    except OSError:
        raise
    except Exception as error:
        raise DamagedTokenizerError(f"tokenizer.json: {error}") from error


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if is_there(file):
        return file.read_text(encoding="utf-8")
    source = settings.get("chat_template")
    return _template_text(_default(source) if isinstance(source, list) else source)


def _default(named: list[Any]) -> object:
    """Of several named templates the one that is meant when none is named."""
    for template in named:
        if not (isinstance(template, dict) and {"name", "template"} <= template.keys()):
            raise DamagedTokenizerError("tokenizer_config.json: an item of chat_template has no name or no template")
        if template["name"] == "default":
            return template["template"]
    return None


def _template_text(source: object) -> str | None:
    if source is None or isinstance(source, str):
        return source
    raise DamagedTokenizerError(f"the chat template is no text but {type(source).__name__}")


def _token_text(settings: dict[str, Any], name: str) -> str:
    """Of a token that is written as its text, as an object with its text, or not at all."""
    token = settings.get(name)
    text = token.get("content") if isinstance(token, dict) else token or ""
    if not isinstance(text, str):
        raise DamagedTokenizerError(f"tokenizer_config.json: {name} has no text")
    return text


def _settings(file: Path) -> dict[str, Any]:
    if not is_there(file):
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedTokenizerError(f"{file.name}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise DamagedTokenizerError(f"{file.name}: not a JSON object")
    return content
