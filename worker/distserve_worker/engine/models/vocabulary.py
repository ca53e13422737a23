"""Tables with a row for each token or position."""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from distserve_worker.engine.models.interface import Collective, Part, Place, Weights
from distserve_worker.engine.models.linear import Linear, as_linear, room_for
from distserve_worker.engine.models.packed import packs


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
    return _filled(rows, weights, place, name, size)


def take_head(weights: Weights, place: Place, name: str, size: int, width: int) -> Head:
    """A head with a table of its own."""
    rows = room_for((-(-size // place.shard.grid.tp), width), place)
    return head_of(_filled(rows, weights, place, name, size), place)


def _filled(rows: torch.Tensor, weights: Weights, place: Place, name: str, size: int) -> Vocabulary:
    mine, width = place.shard.part(size), rows.shape[1]
    if mine:
        weights.take(f"{name}.weight", (size, width), Part(0, mine.start, mine.stop), rows[: len(mine)])
    rows[len(mine) :].zero_()
    return Vocabulary(rows, mine.start, size, place.collective)


def take_positions(weights: Weights, name: str, count: int, hidden: int, offset: int = 0) -> LearnedPositions:
    """The table `name` for `count` positions, every rank has all of it."""
    return LearnedPositions(weights.take(f"{name}.weight", (count + offset, hidden)), offset)
