"""The fixed grid of rates on which goodput is searched: geometric, counted by levels.

What is asked changes neither the rates nor the order in which they are tried; so on one sample path tighter targets
never give a higher goodput.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from distserve_operator.placement.shape import Placement

STEP: Final = 1.01
LOWEST: Final = 0.001  # requests per second
LEVELS: Final = 11  # 2048 rates, up to 700,000 requests per second


def rate_at(level: int) -> float:
    """The rate of a level."""
    return LOWEST * STEP**level


def level_below(rate: float) -> int:
    """The highest level whose rate is no more than `rate`; -1: even the lowest is."""
    if rate < LOWEST:
        return -1
    return min((1 << LEVELS) - 1, math.floor(math.log(rate / LOWEST) / math.log(STEP) + 1e-9))


def highest_passing(passes: Callable[[float], bool]) -> float:
    """The highest rate of the grid that a bisection finds to pass; 0 when not even the lowest does."""
    level = between(lambda one: passes(rate_at(one)), -1, 1 << LEVELS)
    return rate_at(level) if level >= 0 else 0.0


def between(holds: Callable[[int], bool], held: int, failed: int) -> int:
    """The last number of which something holds, by bisection: it is known to of `held` and not to of `failed`."""
    while failed - held > 1:
        middle = (held + failed) // 2
        held, failed = (middle, failed) if holds(middle) else (held, middle)
    return held


@dataclass(frozen=True, slots=True)
class Ladder:
    """What levels are of: of the rate of each device of a fleet, so that fleets of any size share one grid.

    With `devices` every fleet counts as one of so many: the highest level is then the highest rate of a whole fleet.
    """

    devices: int | None = None

    def shares(self, placement: Placement) -> int:
        """By how many the rate of a fleet is divided."""
        return self.devices or placement.devices

    def rate(self, placement: Placement, level: int) -> float:
        """Requests per second of a whole fleet at a level."""
        return self.shares(placement) * rate_at(level)

    def level(self, placement: Placement, rate: float) -> int:
        """The highest level that `rate` requests per second of a whole fleet reach."""
        return level_below(rate / self.shares(placement))


PER_DEVICE: Final = Ladder()
