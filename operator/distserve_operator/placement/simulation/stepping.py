"""Closed forms for many decode steps at once.

While a batch does not change, the duration of its i-th step is the largest of a few straight lines `base + slope * i`
(one for each plane of the latency law and each micro-batch), because every step adds one token to the context of every
request.
"""

import math
from typing import Final

import numpy as np

from distserve_operator.placement.simulation.compiling import compiled

FAR: Final = 1 << 60

Lines = np.ndarray[tuple[int], np.dtype[np.float64]]


@compiled
def top_line(base: Lines, slope: Lines, count: int, step: int) -> int:
    """Index of the line that is highest at `step`; of equal ones the steepest."""
    best = 0
    value = base[0] + slope[0] * step
    for line in range(1, count):
        other = base[line] + slope[line] * step
        if other > value or (other == value and slope[line] > slope[best]):
            best, value = line, other
    return best


@compiled
def stays_on_top(base: Lines, slope: Lines, count: int, line: int, step: int) -> int:
    """How many steps from `step` on `line` remains the highest, at least 1."""
    length = FAR
    value = base[line] + slope[line] * step
    for other in range(count):
        if slope[other] > slope[line]:
            behind = value - (base[other] + slope[other] * step)
            length = min(length, max(1, math.ceil(behind / (slope[other] - slope[line]))))
    return length


@compiled
def duration(base: Lines, slope: Lines, count: int, step: int) -> float:
    """Seconds of one step."""
    longest = 0.0
    for line in range(count):
        longest = max(longest, base[line] + slope[line] * step)
    return longest


@compiled
def time_of(base: Lines, slope: Lines, count: int, steps: int) -> float:
    """Seconds of `steps` steps."""
    done = 0
    total = 0.0
    while done < steps:
        line = top_line(base, slope, count, done)
        first = base[line] + slope[line] * done
        length = min(steps - done, stays_on_top(base, slope, count, line, done))
        total += length * first + slope[line] * (length * (length - 1) / 2)
        done += length
    return total


@compiled
def steps_until(base: Lines, slope: Lines, count: int, seconds: float, most: int) -> int:
    """The fewest steps that take at least `seconds`, but no more than `most`."""
    done = 0
    total = 0.0
    while done < most:
        line = top_line(base, slope, count, done)
        first = base[line] + slope[line] * done
        length = min(most - done, stays_on_top(base, slope, count, line, done))
        whole = total + length * first + slope[line] * (length * (length - 1) / 2)
        if whole >= seconds:
            return done + _steps_in_series(first, slope[line], seconds - total, length)
        total = whole
        done += length
    return most


@compiled
def _steps_in_series(first: float, slope: float, seconds: float, most: int) -> int:
    """The fewest terms of `first, first + slope, ...` that add up to at least `seconds`."""
    if slope <= 0.0:
        steps = math.ceil(seconds / first)
    else:
        half = first / slope - 0.5
        steps = math.ceil(math.sqrt(half * half + 2.0 * seconds / slope) - half)
    steps = max(0, min(most, steps))
    while steps > 0 and (steps - 1) * first + slope * ((steps - 1) * (steps - 2) / 2) >= seconds:
        steps -= 1
    while steps < most and steps * first + slope * (steps * (steps - 1) / 2) < seconds:
        steps += 1
    return steps
