"""Which instance acts next."""

import numpy as np

from distserve_operator.placement.simulation.compiling import compiled


@compiled
def soonest(times: np.ndarray[tuple[int], np.dtype[np.float64]], count: int) -> int:
    """The instance whose event comes first; of equal ones the first."""
    best, time = 0, times[0]
    for one in range(1, count):  # without a branch, which no processor could predict
        sooner = times[one] < time
        best = one if sooner else best
        time = times[one] if sooner else time
    return best
