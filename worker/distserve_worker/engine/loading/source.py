"""What every file format offers to the loader."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

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

    def load(self, name: str) -> torch.Tensor:
        """One tensor as a floating point tensor of its logical shape. Raises `ModelInvalid` naming it."""
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
