"""Matrices of layers, cut over the ranks of a stage by outputs or by inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch.nn.functional import linear

from distserve_worker.engine.models.interface import Collective, Part, Place, Weights
from distserve_worker.engine.models.packed import packed, packs, scratch
from distserve_worker.engine.models.quantized import Int8Linear, quantize

_SCRATCH: Final = 1 << 19  # elements in FP32 at once while a matrix is quantized


class Linear(Protocol):
    """A matrix, packed as its kind wants it, and a bias."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs] → a new [n, outputs]."""
        ...


@dataclass(frozen=True, slots=True)
class DenseLinear:
    """A matrix in the compute dtype."""

    weight: torch.Tensor  # [outputs, inputs]
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class RowParallel:
    """A `Linear` of which each rank has some of the inputs; they add up what they get, and one of them has the bias."""

    part: Linear
    collective: Collective

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        return self.collective.sum(self.part(x))


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs [start, stop) of the `total` of a stored matrix: `name`.weight, and `name`.bias where it has one."""

    name: str
    total: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many they are."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Storage:
    """How an architecture stores a matrix: [inputs, outputs] when it is `transposed`."""

    inputs: int
    bias: bool = False
    transposed: bool = False


def column_parallel(weights: Weights, place: Place, pieces: Sequence[Outputs], storage: Storage) -> Linear:
    """This rank's outputs of one or several matrices, fused into one in the order of `pieces`."""
    bias = _bias(weights, place, pieces) if storage.bias else None
    return _take(weights, place, pieces, storage, range(storage.inputs), bias)


def row_parallel(weights: Weights, place: Place, name: str, outputs: int, inputs: range, storage: Storage) -> Linear:
    """All outputs of the matrix `name`, from this rank's `inputs`."""
    pieces = (Outputs(name, outputs, 0, outputs),)
    bias = _bias(weights, place, pieces) if storage.bias and place.shard.tensor_rank == 0 else None
    part = _take(weights, place, pieces, storage, inputs, bias)
    return RowParallel(part, place.collective) if place.splits else part


def _take(
    weights: Weights,
    place: Place,
    pieces: Sequence[Outputs],
    storage: Storage,
    inputs: range,
    bias: torch.Tensor | None,
) -> Linear:
    shape = (sum(piece.count for piece in pieces), len(inputs))
    if place.precision.quantized:
        return _take_quantized(weights, place, pieces, storage, inputs, bias)
    weight = room_for(shape, place)
    for piece, rows in _places(pieces):
        cut = None if len(inputs) == storage.inputs else inputs
        _read(weights, piece, storage, cut, weight[rows])
    return as_linear(weight, bias)


def room_for(shape: tuple[int, ...], place: Place) -> torch.Tensor:
    """Memory for a matrix that becomes a `Linear`."""
    device, dtype = place.device, place.precision.compute
    return scratch(shape, dtype, device) if packs(device, dtype) else torch.empty(shape, dtype=dtype, device=device)


def as_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """The matrix `weight` [outputs, inputs] in whatever form is fastest here; what it was can be forgotten then."""
    return packed(weight, bias) if packs(weight.device, weight.dtype) else DenseLinear(weight, bias)


def _take_quantized(
    weights: Weights,
    place: Place,
    pieces: Sequence[Outputs],
    storage: Storage,
    inputs: range,
    bias: torch.Tensor | None,
) -> Int8Linear:
    """Scales come from all inputs, be they this rank's or not: the model is the same however it is cut."""
    outputs = sum(piece.count for piece in pieces)
    packed = torch.empty((outputs, len(inputs)), dtype=torch.int8, device=place.device)
    scales = torch.empty(outputs, dtype=place.precision.compute, device=place.device)
    # of shapes alone there is nothing to compute, and torch would take seconds to say so
    has_content = place.device.type != "meta"
    most = max(1, _SCRATCH // storage.inputs) if has_content else max(piece.count for piece in pieces)
    room = scratch((most, storage.inputs), torch.float32, place.device)
    for piece, rows in _places(_short(pieces, most)):
        whole = room[: piece.count]
        _read(weights, piece, storage, None, whole)
        if has_content:
            quantize(whole, inputs, packed[rows], scales[rows])
    return Int8Linear(packed, scales, bias)


def _read(weights: Weights, piece: Outputs, storage: Storage, inputs: range | None, out: torch.Tensor) -> None:
    """Read [outputs of the piece, inputs] into `out`; a part is cut in one dimension only."""
    cut = Part(0, piece.start, piece.stop) if inputs is None else Part(1, inputs.start, inputs.stop)
    shape = (piece.total, storage.inputs)
    if storage.transposed:
        cut, shape, out = Part(1 - cut.dim, cut.start, cut.stop), (storage.inputs, piece.total), out.t()
    weights.take(f"{piece.name}.weight", shape, cut, out)


def _bias(weights: Weights, place: Place, pieces: Sequence[Outputs]) -> torch.Tensor:
    outputs = sum(piece.count for piece in pieces)
    bias = torch.empty(outputs, dtype=place.precision.compute, device=place.device)
    for piece, rows in _places(pieces):
        weights.take(f"{piece.name}.bias", (piece.total,), Part(0, piece.start, piece.stop), bias[rows])
    return bias


def _places(pieces: Sequence[Outputs]) -> Iterator[tuple[Outputs, slice]]:
    """Each piece, and its rows among all of them."""
    at = 0
    for piece in pieces:
        yield piece, slice(at, at + piece.count)
        at += piece.count


def _short(pieces: Sequence[Outputs], most: int) -> list[Outputs]:
    """The same outputs in pieces of at most `most`."""
    return [
        Outputs(piece.name, piece.total, start, min(start + most, piece.stop))
        for piece in pieces
        for start in range(piece.start, piece.stop, most)
    ]
