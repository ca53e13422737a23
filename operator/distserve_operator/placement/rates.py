"""The fixed grid of rates on which goodput is searched.

Whatever the targets and the devices, the same rates are tried in the same order; so on one sample path tighter targets
never give a higher goodput. The grid is geometric.
"""

from collections.abc import Callable
from typing import Final

STEP: Final = 1.01
LOWEST: Final = 0.001  # requests per second
LEVELS: Final = 11  # 2048 rates, up to 700,000 requests per second


def rate_at(place: int) -> float:
    """The rate at a place of the grid."""
    return LOWEST * STEP**place


def highest_passing(passes: Callable[[float], bool]) -> float:
    """The highest rate of the grid that a bisection finds to pass; 0 when not even the lowest does."""
    low, high = -1, 1 << LEVELS
    while high - low > 1:
        middle = (low + high) // 2
        if passes(rate_at(middle)):
            low = middle
        else:
            high = middle
    return rate_at(low) if low >= 0 else 0.0
