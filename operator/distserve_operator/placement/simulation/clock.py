"""Which instance acts next."""

import numpy as np

from distserve_operator.placement.simulation.compiling import compiled


@compiled
def soonest(times: np.ndarray[tuple[int], np.dtype[np.float64]], count: int) -> int:
    """The instance whose event comes first; of equal ones the first."""
    best = 0
    for one in range(1, count):
        if times[one] < times[best]:
            best = one
    return best
