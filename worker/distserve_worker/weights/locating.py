"""Finds a model's files on this machine from the URI that a user wrote, downloading them from a hub when needed."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from distserve_worker.weights.errors import ModelNotFound

# A repository often holds the same weights again in other formats.
TEXT_FILES: Final = ("*.json", "*.jinja")
ALL_FILES: Final = ("*.safetensors", "tokenizer.model", *TEXT_FILES)


def locate(uri: str, files: Sequence[str] = ALL_FILES) -> Path:
    """Local path of a model: a GGUF file or a Hugging Face folder.

    `uri` is a plain path, `file:///path` or `hf://org/name@revision`; of the last only `files` are downloaded. Raises
    `ModelNotFound` naming the URI.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return _existing(Path(uri), uri)
    if scheme == "file":
        return _existing(Path(unquote(urlsplit(uri).path)), uri)
    if scheme == "hf":
        return _from_hub(rest, uri, files)
    raise ModelNotFound(f"{uri}: the scheme {scheme} is not known (known: file, hf, or a plain path)")


def _existing(path: Path, uri: str) -> Path:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = "no such file or folder" if isinstance(error, FileNotFoundError) else str(error)
        raise ModelNotFound(f"{uri}: {reason}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ModelNotFound(f"{uri}: neither a file nor a folder")
    return path


def _from_hub(reference: str, uri: str, files: Sequence[str]) -> Path:
    # imported here: it takes longer than everything else a local model needs at start
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, _, revision = reference.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(files)))
    except HFValidationError as error:
        raise ModelNotFound(f"{uri}: not of the form hf://organisation/name@revision ({error})") from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFound(f"{uri}: the hub cannot be reached and the model is not in the local cache") from error
    except (HfHubHTTPError, OSError) as error:
        raise ModelNotFound(f"{uri}: the hub refused it ({error})") from error
