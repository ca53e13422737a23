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
def begun(phases: Numbers, step: int) -> int:
    """Requests that begin a new block with step number `step`."""
    return int(phases[-step & LAST])


@compiled
def growth(phases: Numbers, steps: int, requests: int, more: int) -> int:
    """Blocks that `more` steps add to a batch of `requests` that has done `steps`: one each in any `BLOCK_TOKENS`."""
    total = requests * (more >> BLOCK_BITS)
    for step in range(steps, steps + (more & LAST)):
        total += begun(phases, step)
    return total


@compiled
def steps_that_fit(phases: Numbers, steps: int, requests: int, most: int, free: int) -> int:
    """The most steps up to `most` that add no more than `free` blocks to a batch of `requests`."""
    fit = (free // requests) << BLOCK_BITS
    left = free % requests
    while fit < most:
        left -= begun(phases, steps + fit)
        if left < 0:
            return fit
        fit += 1
    return most
