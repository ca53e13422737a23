"""Draws one token of each row by its weights, from random numbers that depend on seed and position alone."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

_BLOCK: Final = 256  # tokens whose weights are summed: a random number for each token of a vocabulary would be slow
_SOONEST: Final = 1e-300  # the weight of a whole vocabulary divided by it is finite


def runners(vocabulary: int) -> int:
    """How many random numbers the choice of one token of a vocabulary takes."""
    return -(-vocabulary // _BLOCK) + _BLOCK


def times(seed: int, position: int, count: int) -> npt.NDArray[np.float64]:
    """Exponentially distributed random numbers, [count], that depend on nothing but `seed` and `position`."""
    philox = np.random.Philox(key=seed, counter=position << 64)  # which leaves 2**64 steps for each position
    return np.random.Generator(philox).standard_exponential(count)


def draw(weights: torch.Tensor, times: Sequence[npt.NDArray[np.float64]]) -> torch.Tensor:
    """Two exponential races: [n, vocabulary] and n times [runners(vocabulary)] to n token ids.

    Of runners with times E(i) / w(i), E(i) exponential, i is first with probability w(i) / sum(w). Blocks of tokens run
    first, then the tokens of the block that won. A last bit of the weights changes the winner only when two are as
    close as that; along a cumulative sum every token has a border that moves with the bits of all before it. A token of
    weight 0 is never drawn. Rows that are not finite give any id.
    """
    rows, vocabulary = weights.shape
    blocks = torch.nn.functional.pad(weights, (0, -vocabulary % _BLOCK)).view(rows, -1, _BLOCK)
    handicaps = torch.from_numpy(np.stack(times)).clamp_(min=_SOONEST).to(weights.device)
    block = (blocks.sum(dim=-1) / handicaps[:, _BLOCK:]).max(dim=-1).indices
    place = (blocks[torch.arange(rows, device=weights.device), block] / handicaps[:, :_BLOCK]).max(dim=-1).indices
    return (block * _BLOCK + place).clamp(max=vocabulary - 1)
