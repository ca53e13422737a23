"""Tables with a row for each token or position."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import torch
from torch.nn.functional import embedding

from distserve_worker.engine.models.interface import Collective, Part, Place, Weights
from distserve_worker.engine.models.linear import Linear, as_linear, room_for
from distserve_worker.engine.models.packed import packs

_LARGE: Final = 8 << 20  # bytes of a head from which on a second copy of it matters
# A large head is packed in sevenths: while a slice is there twice, those that follow are not there yet, so a seventh is
# the most that it takes besides. More and smaller slices would make steps slower.
_SLICES: Final = (4, 2, 1)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A row for each token, in equal shares over the ranks of a stage.

    The last shares are filled up with zeros where the ranks do not divide the vocabulary.
    """

    rows: torch.Tensor  # [share, width]
    first: int  # token of the first row
    size: int  # tokens of the whole vocabulary
    collective: Collective

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids [n] → [n, width]."""
        if len(self.rows) == self.size:
            return embedding(tokens, self.rows)
        local = tokens - self.first
        others = (local < 0) | (local >= len(self.rows))
        found = embedding(local.masked_fill_(others, 0), self.rows)
        return self.collective.sum(found.masked_fill_(others.unsqueeze(1), 0.0))


@dataclass(frozen=True, slots=True)
class Slices:
    """A `Linear` of several, whose outputs are one after another."""

    parts: tuple[Linear, ...]
    outputs: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        out, at = x.new_empty((len(x), self.outputs)), 0
        for part in self.parts:
            scores = part(x)
            out[:, at : at + scores.shape[1]] = scores
            at += scores.shape[1]
        return out


@dataclass(frozen=True, slots=True)
class Head:
    """Scores every token of a vocabulary."""

    matrix: Linear  # [share, width]
    size: int
    collective: Collective

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """[m, width] → the whole vocabulary's scores [m, size] in FP32."""
        return self.collective.gather(self.matrix(hidden))[:, : self.size].float()


def head_of(vocabulary: Vocabulary, place: Place) -> Head:
    """What scores tokens by the same rows; where matrices are packed it has a copy of them."""
    rows = vocabulary.rows
    if rows.is_meta and packs(place.target, rows.dtype):
        rows = rows.clone()  # so that it counts
    return Head(as_linear(rows), vocabulary.size, vocabulary.collective)


@dataclass(frozen=True, slots=True)
class LearnedPositions:
    """A row for each position, from row `offset` on."""

    rows: torch.Tensor  # [positions, hidden]
    offset: int

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        """Positions [n] → [n, hidden]."""
        return embedding(positions + self.offset, self.rows)


def take_vocabulary(weights: Weights, place: Place, name: str, size: int, width: int) -> Vocabulary:
    """This rank's share of the table `name`."""
    share = -(-size // place.shard.grid.tp)
    rows = torch.empty((share, width), dtype=place.precision.compute, device=place.device)
    _fill(rows, weights, place, name, size)
    return Vocabulary(rows, place.shard.part(size).start, size, place.collective)


def take_head(weights: Weights, place: Place, name: str, size: int, width: int) -> Head:
    """A head with a table of its own, which is never whole in memory where it is packed."""
    share = -(-size // place.shard.grid.tp)
    parts = []
    for mine in _slices(share, width, place):
        rows = room_for((len(mine), width), place)
        _fill(rows, weights, place, name, size, mine.start)
        parts.append(as_linear(rows))
        del rows  # before there is room for the next ones
    return Head(Slices(tuple(parts), share) if len(parts) > 1 else parts[0], size, place.collective)


def _slices(share: int, width: int, place: Place) -> list[range]:
    """Rows that are packed at once."""
    dtype = place.precision.compute
    if not packs(place.device, dtype) or share * width * dtype.itemsize < _LARGE:
        return [range(share)]
    ends = [share * sevenths // sum(_SLICES) for sevenths in accumulate(_SLICES)]
    return [range(first, end) for first, end in pairwise([0, *ends]) if first < end]


def _fill(rows: torch.Tensor, weights: Weights, place: Place, name: str, size: int, first: int = 0) -> None:
    """This rank's share of the table `name`, from row `first` of the share on; zeros beyond the table."""
    mine = place.shard.part(size)[first : first + len(rows)]
    if mine:
        weights.take(f"{name}.weight", (size, rows.shape[1]), Part(0, mine.start, mine.stop), rows[: len(mine)])
    rows[len(mine) :].zero_()


def take_positions(weights: Weights, name: str, count: int, hidden: int, offset: int = 0) -> LearnedPositions:
    """The table `name` for `count` positions, every rank has all of it."""
    return LearnedPositions(weights.take(f"{name}.weight", (count + offset, hidden)), offset)
