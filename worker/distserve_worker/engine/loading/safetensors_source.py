"""Weights out of a Hugging Face folder: one safetensors file, or shards with an index."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from distserve_worker.engine.loading.source import StoredTensor, require_complete
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_FLOATS: Final = frozenset({"F32", "F16", "BF16"})
_LENGTH: Final = struct.Struct("<Q")


class SafetensorsSource:
    """A `TensorSource` over the safetensors files of a folder; files are memory-mapped."""

    def __init__(self, folder: Path) -> None:
        paths = _files(folder)
        self.stored = {stored.name: stored for path in paths for stored in _header(path)}
        require_complete(self.stored.values())
        self._files = {path: _open(path) for path in paths}

    def load(self, name: str) -> torch.Tensor:
        """See `TensorSource.load`."""
        stored = self.stored[name]
        if stored.dtype not in _FLOATS:
            raise ModelInvalid(
                f"{stored.path}: tensor {name}: dtype {stored.dtype} is not known (known: {', '.join(sorted(_FLOATS))})"
            )
        tensor: torch.Tensor = self._files[stored.path].get_tensor(name)
        return tensor


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelInvalid(f"{index}: no weight_map in it ({error})") from error
        paths = [folder / shard for shard in shards]
    else:
        paths = [folder / SINGLE]
    for path in paths:
        if not path.is_file():
            raise ModelNotFound(f"{path}: no such file")
    return paths


def _header(path: Path) -> Iterator[StoredTensor]:
    """Where the tensors lie; the library gives no offsets, and the digest and the truncation check need them."""
    with path.open("rb") as file:
        try:
            (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
            if size > path.stat().st_size:
                raise ValueError(f"a header of {size} bytes in a file of {path.stat().st_size}")
            entries = json.loads(file.read(size))
            for name, entry in entries.items():
                if name != "__metadata__":
                    start, end = entry["data_offsets"]
                    shape = tuple(entry["shape"])
                    yield StoredTensor(name, entry["dtype"], shape, path, _LENGTH.size + size + start, end - start)
        except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelInvalid(f"{path}: the safetensors header is truncated or damaged ({error})") from error


def _open(path: Path) -> Any:  # noqa: ANN401 - the library has no public type for it
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ModelInvalid(f"{path}: not a sound safetensors file ({error})") from error
