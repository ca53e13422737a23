"""KV blocks that a batch takes as it grows: exact, without looking at each request.

`phases[p]` counts the running requests whose context, less the steps done so far, is p modulo the block size. That
number does not change while a request runs, since context and steps grow together.
"""

from typing import Final

import numpy as np

from distserve_operator.placement.simulation.block_size import BLOCK_BITS, BLOCK_TOKENS
from distserve_operator.placement.simulation.compiling import compiled

LAST: Final = BLOCK_TOKENS - 1

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


@compiled
def blocks_of(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + LAST) >> BLOCK_BITS


@compiled
def growth(phases: Numbers, steps: int, more: int) -> int:
    """Blocks that `more` steps add to a batch that has done `steps`."""
    total = 0
    for phase in range(BLOCK_TOKENS):
        used = ((phase + steps) & LAST) + LAST
        total += phases[phase] * (((used + more) >> BLOCK_BITS) - (used >> BLOCK_BITS))
    return total


@compiled
def steps_that_fit(phases: Numbers, steps: int, requests: int, most: int, free: int) -> int:
    """The most steps up to `most` that add no more than `free` blocks to a batch of `requests`."""
    if requests * blocks_of(most) <= free or growth(phases, steps, most) <= free:
        return most
    fits, fails = 0, most
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if growth(phases, steps, middle) <= free:
            fits = middle
        else:
            fails = middle
    return fits
