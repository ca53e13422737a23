"""Which tensors a Hugging Face folder has, and where they lie in its safetensors files.

The library gives no offsets, and digest, truncation check and reading of parts need them.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from distserve_worker.engine.loading.source import StoredTensor
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.files import is_there

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_PICKLED: Final = "pytorch_model*.bin"
_LENGTH: Final = struct.Struct("<Q")
_DAMAGES: Final = (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def stored_tensors(folder: Path) -> Iterator[StoredTensor]:
    """All tensors of the one file or of all shards. Raises `ModelInvalid`, or `ModelNotFound` for a missing file."""
    for path in _files(folder):
        yield from _tensors(path)


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    paths = [folder / shard for shard in _shards(index)] if is_there(index) else [folder / SINGLE]
    pickled = min(folder.glob(_PICKLED), default=None)
    if pickled is not None and not any(is_there(path) for path in paths):
        raise ModelInvalid(f"{pickled}: only safetensors and GGUF files are read: convert it to {SINGLE}")
    for path in paths:
        if not is_there(path):
            raise ModelNotFound(f"{path}: no such file")
    return paths


def _shards(index: Path) -> list[str]:
    try:
        shards = set(json.loads(index.read_text())["weight_map"].values())
        if not all(isinstance(shard, str) for shard in shards):
            raise TypeError("names of shards must be strings")
        outside = [shard for shard in shards if PurePath(shard).is_absolute() or ".." in PurePath(shard).parts]
        if outside:
            raise ModelInvalid(f"{index}: the shard {min(outside)!r} is not in the folder")
        return sorted(shards)
    except _DAMAGES as error:
        raise ModelInvalid(f"{index}: no weight_map in it ({error})") from error


def _tensors(path: Path) -> Iterator[StoredTensor]:
    try:
        start, entries = _header(path)
        for name, entry in entries.items():
            if name != "__metadata__":
                yield _tensor(name, entry, path, start)
    except _DAMAGES as error:
        raise ModelInvalid(f"{path}: the safetensors header is truncated or damaged ({error})") from error


def _header(path: Path) -> tuple[int, Mapping[str, Any]]:
    """Where the tensors' bytes begin, and what is written about each."""
    with path.open("rb") as file:
        (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if size > path.stat().st_size:
            raise ValueError(f"a header of {size} bytes in a file of {path.stat().st_size}")
        entries: Mapping[str, Any] = json.loads(file.read(size))
        return _LENGTH.size + size, entries


def _tensor(name: str, entry: Mapping[str, Any], path: Path, start: int) -> StoredTensor:
    first, end = entry["data_offsets"]
    shape, dtype = tuple(entry["shape"]), str(entry["dtype"])
    if not all(type(number) is int for number in (first, end, *shape)):
        raise ValueError(f"tensor {name} of shape {shape} at bytes {first} to {end}: these must be whole numbers")
    if first < 0 or end < first or any(size < 0 for size in shape):
        raise ValueError(f"tensor {name} of shape {shape} at bytes {first} to {end}")
    items = math.prod(shape)
    if (end - first) * 8 % max(items, 1):
        raise ValueError(f"tensor {name} has {items} items in {end - first} bytes")
    return StoredTensor(name, dtype, shape, path, start + first, end - first)
