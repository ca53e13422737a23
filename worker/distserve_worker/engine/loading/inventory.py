"""What one rank's part of a model takes out of the files, and how much memory it needs: known before anything is read.

The model is built as usual, but of tensors without content, so this cannot differ from what loading does.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass

import torch

from distserve_worker.engine.dtypes import PRECISIONS, Precision
from distserve_worker.engine.models.interface import Alone, Part, Place
from distserve_worker.engine.models.registry import MODELS
from distserve_worker.engine.parallel import WHOLE, Shard, shard_of
from distserve_worker.weights.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Inventory:
    """`shapes` of whole tensors by name; `items` that are read of them; `nbytes` of the finished part in memory."""

    shapes: Mapping[str, tuple[int, ...]]
    items: Mapping[str, int]
    nbytes: int


def weight_bytes(config: ModelConfig, shard: Shard, dtype: str, device: str = "cpu") -> int:
    """Bytes of memory that the weights of `shard` need in `dtype` (of `dtypes.PRECISIONS`) on a kind of device."""
    return inventory(config, shard, PRECISIONS[dtype], torch.device(device)).nbytes


def all_shapes(config: ModelConfig) -> Mapping[str, tuple[int, ...]]:
    """Names and shapes of all tensors of the model."""
    return inventory(config, shard_of(config, WHOLE, 0), PRECISIONS["FP32"], torch.device("cpu")).shapes


def inventory(config: ModelConfig, shard: Shard, precision: Precision, device: torch.device) -> Inventory:
    """The inventory of one rank that is to run on `device`."""
    weights = _Names(precision.compute)
    place = Place(shard, Alone(), torch.device("meta"), device, precision)
    model = MODELS[config.architecture].build(config, weights, place)
    tensors = {id(tensor): tensor for tensor in _tensors(model)}  # a tied table is there twice
    return Inventory(weights.shapes, weights.items, sum(tensor.nbytes for tensor in tensors.values()))


class _Names:
    """`Weights` without content."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.items: dict[str, int] = {}
        self._dtype = dtype

    def take(
        self, name: str, shape: tuple[int, ...], part: Part | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Weights.take`."""
        self.shapes[name] = shape
        self.items[name] = self.items.get(name, 0) + math.prod(part_shape(shape, part))
        return torch.empty(part_shape(shape, part), dtype=self._dtype, device="meta") if out is None else out


def part_shape(shape: tuple[int, ...], part: Part | None) -> tuple[int, ...]:
    """Shape of a part of a tensor."""
    if part is None:
        return shape
    return (*shape[: part.dim], part.stop - part.start, *shape[part.dim + 1 :])


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """All tensors that a model is made of."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
