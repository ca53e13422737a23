"""Draws one token of each row by its weights, from random numbers that depend on seed and position alone."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

_BLOCK: Final = 256  # tokens whose weights are summed before the search: the vocabulary is never scanned one by one


def uniform(seed: int, position: int) -> float:
    """A random number in [0, 1) that depends on nothing but `seed` and `position`."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


def draw(weights: torch.Tensor, uniforms: Sequence[float]) -> torch.Tensor:
    """Inverse CDF over the tokens in order of their ids: [n, vocabulary] and n numbers in [0, 1) to n token ids.

    That order does not change with the last bit of a weight, as an order by weight would. A token of weight 0 is never
    drawn. Rows that are not finite give any id.
    """
    rows, vocabulary = weights.shape
    blocks = torch.nn.functional.pad(weights, (0, -vocabulary % _BLOCK)).view(rows, -1, _BLOCK)
    sums = blocks.sum(dim=-1).double().cumsum(dim=-1)
    targets = torch.tensor(uniforms, dtype=torch.float64, device=weights.device).unsqueeze(-1) * sums[:, -1:]
    block = _first_above(sums, targets)
    before = sums.gather(1, (block - 1).clamp(min=0)).where(block > 0, 0.0)
    inside = blocks.gather(1, block.unsqueeze(-1).expand(-1, -1, _BLOCK)).squeeze(1).double().cumsum(dim=-1)
    place = _first_above(inside, (targets - before).clamp(min=0.0))
    return (block * _BLOCK + place).squeeze(-1).clamp(max=vocabulary - 1)


def _first_above(cumulative: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Index [n, 1] of the first sum above the target; the last one that grew when rounding put the target beyond it."""
    end = cumulative[:, -1:]
    reachable = torch.minimum(targets, torch.nextafter(end, torch.zeros_like(end)))
    return torch.searchsorted(cumulative, reachable, right=True).clamp(max=cumulative.shape[-1] - 1)
