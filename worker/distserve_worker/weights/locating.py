"""Finds a model's files on this machine from the URI that a user wrote, downloading them from a hub when needed."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from distserve_worker.weights.download_progress import Downloading
from distserve_worker.weights.errors import ModelNotFound
from distserve_worker.weights.patience import Patience

# A repository often holds the same weights again in other formats.
TEXT_FILES: Final = ("*.json", "*.jinja")
ALL_FILES: Final = ("*.safetensors", "tokenizer.model", *TEXT_FILES)
_PATIENCE: Final = Patience()


def _unheard(done: int, total: int) -> None:
    """The log tells all the same."""


def locate(
    uri: str,
    files: Sequence[str] = ALL_FILES,
    downloading: Downloading = _unheard,
    patience: Patience = _PATIENCE,
) -> Path:
    """Local path of a model: a GGUF file or a Hugging Face folder.

    `uri` is a plain path, `file:///path` or `hf://org/name@revision`; of the last only `files` are downloaded, and
    `downloading` is told how many bytes of how many are there. Raises `ModelNotFound` naming the URI.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return _existing(Path(uri), uri)
    if scheme == "file":
        return _existing(Path(unquote(urlsplit(uri).path)), uri)
    if scheme == "hf":
        return _from_hub(rest, uri, files, downloading, patience)
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


def _from_hub(reference: str, uri: str, files: Sequence[str], downloading: Downloading, patience: Patience) -> Path:
    # imported here: it takes longer than everything else a local model needs at start
    from distserve_worker.weights.downloading import HubModel, download

    repository, _, revision = reference.partition("@")
    return download(HubModel(uri, repository, revision or None, files), downloading, patience)
