"""What every file format offers to the loader."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from distserve_worker.engine.models.interface import Part
from distserve_worker.weights.errors import ModelInvalid


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor lies on disk: `nbytes` from `offset` in `path`, in the format's own name of its dtype."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int


class TensorSource(Protocol):
    """The tensors of a model, by Hugging Face's names."""

    @property
    def stored(self) -> Mapping[str, StoredTensor]:
        """All tensors that the files hold."""
        ...

    def require_readable(self, name: str) -> None:
        """Raise `ModelInvalid` naming the tensor when its dtype is none that can be read as floating point."""
        ...

    def read(self, name: str, part: Part | None, out: torch.Tensor) -> None:
        """Read a tensor of one or two dimensions, or a part of it, into `out` of the same shape, dtypes converted.

        No more than a few MB are in memory besides. Raises `ModelInvalid` when the file has become shorter.
        """
        ...


def require_complete(tensors: Iterable[StoredTensor]) -> None:
    """Raise `ModelInvalid` naming the first tensor that its file is too short for."""
    sizes: dict[Path, int] = {}
    for tensor in tensors:
        size = sizes.setdefault(tensor.path, tensor.path.stat().st_size)
        if tensor.offset + tensor.nbytes > size:
            raise ModelInvalid(
                f"{tensor.path}: truncated: tensor {tensor.name} ends at byte {tensor.offset + tensor.nbytes}, "
                f"the file at {size}"
            )


def ranges(shape: tuple[int, int], part: Part | None) -> tuple[range, range]:
    """Rows and columns of a matrix that a part has."""
    rows, columns = range(shape[0]), range(shape[1])
    if part is None:
        return rows, columns
    mine = range(part.start, part.stop)
    return (mine, columns) if part.dim == 0 else (rows, mine)
