"""Weights out of a Hugging Face folder: one safetensors file, or shards with an index."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from distserve_worker.engine.loading.reading import OpenFile, opened
from distserve_worker.engine.loading.safetensors_header import stored_tensors
from distserve_worker.engine.loading.source import StoredTensor, ranges, require_complete
from distserve_worker.engine.models.interface import Part
from distserve_worker.weights.errors import ModelInvalid

_FLOATS: Final[Mapping[str, torch.dtype]] = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
_PIECE: Final = 1 << 20  # bytes that are read at once


class SafetensorsSource:
    """A `TensorSource` over the safetensors files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.stored = {stored.name: stored for stored in stored_tensors(folder)}
        require_complete(self.stored.values())

    def require_readable(self, name: str) -> None:
        """See `TensorSource.require_readable`."""
        stored = self.stored[name]
        where = f"{stored.path}: tensor {name}"
        if stored.dtype not in _FLOATS:
            raise ModelInvalid(f"{where}: dtype {stored.dtype} is not known (known: {', '.join(_FLOATS)})")
        items = stored.nbytes // _FLOATS[stored.dtype].itemsize
        if items != torch.Size(stored.shape).numel():
            raise ModelInvalid(f"{where}: {stored.nbytes} bytes of {stored.dtype} are not of the shape {stored.shape}")

    def read(self, name: str, part: Part | None, out: torch.Tensor) -> None:
        """See `TensorSource.read`."""
        stored = self.stored[name]
        matrix = _Matrix(stored, _FLOATS[stored.dtype])
        rows, columns = ranges(matrix.shape, part)
        out = out if out.dim() == 2 else out.unsqueeze(1)
        step = max(1, _PIECE // max(1, len(columns) * matrix.dtype.itemsize))
        with opened(stored.path) as file:
            for start in range(0, len(rows), step):
                matrix.read(file, rows[start : start + step], columns, out[start : start + step])


class _Matrix:
    """A stored tensor as rows and columns; one of a single dimension has one column."""

    def __init__(self, stored: StoredTensor, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.shape = (stored.shape[0], stored.shape[1] if len(stored.shape) == 2 else 1)
        self._offset = stored.offset
        self._row_bytes = self.shape[1] * dtype.itemsize

    def read(self, file: OpenFile, rows: range, columns: range, out: torch.Tensor) -> None:
        """Straight into `out` where that is laid out as the file is."""
        straight = out.dtype is self.dtype and out.device.type == "cpu" and out.is_contiguous()
        piece = out if straight else torch.empty(out.shape, dtype=self.dtype)
        # a view of few items may be contiguous and still have strides that no other dtype can be viewed with
        buffer = piece.as_strided((piece.numel(),), (1,)).view(torch.uint8).numpy().data
        first = self._offset + columns.start * self.dtype.itemsize
        if len(columns) == self.shape[1]:
            file.read_into(buffer, first + rows.start * self._row_bytes)
        else:
            size = len(columns) * self.dtype.itemsize
            for place, row in enumerate(rows):
                file.read_into(buffer[place * size : (place + 1) * size], first + row * self._row_bytes)
        if not straight:
            out.copy_(piece)
