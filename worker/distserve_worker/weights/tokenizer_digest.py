"""A fingerprint of what turns text into token ids, so that ids of one model never reach the weights of another."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from distserve_worker.weights.files import is_there
from distserve_worker.weights.gguf_header import read_gguf_header

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_METADATA_PREFIX: Final = "tokenizer."
_DIGEST_BYTES: Final = 16


def tokenizer_digest(path: Path) -> str:
    """Hex digest of the vocabulary and chat template of the GGUF file or Hugging Face folder at `path`.

    The same tokenizer has different digests in the two formats. Raises `ModelInvalid` for a damaged GGUF header,
    `ModelNotFound` for what is no regular file.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name, content in _of_folder(path) if path.is_dir() else _of_gguf(path):
        # lengths first, so that nothing can move from one part into its neighbour unnoticed
        digest.update(f"{len(name)} {len(content)} {name}".encode())
        digest.update(content)
    return digest.hexdigest()


def _of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in TOKENIZER_FILES:
        if is_there(folder / name):
            yield name, (folder / name).read_bytes()


def _of_gguf(path: Path) -> Iterator[tuple[str, bytes]]:
    for key, value in sorted(read_gguf_header(path).metadata.items()):
        if key.startswith(_METADATA_PREFIX):
            yield key, json.dumps(value).encode()
