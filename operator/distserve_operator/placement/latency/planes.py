"""Fits planes to points by least squares of the relative error, with no coefficient below zero."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

FEWEST: Final = 4  # points of a plane: one more than it has coefficients
# a second plane has to take away so much of an error that is worth it
_WORTH: Final = 0.02
_TAKES_AWAY: Final = 0.25
_ROUNDS: Final = 30


def fit_planes(work: Sequence[tuple[float, float]], seconds: Sequence[float]) -> list[Vector]:
    """One or two planes `fixed + a * work[0] + b * work[1]` whose larger one lies closest to `seconds`.

    One that is bound by the memory and one by the arithmetic, if the points tell them apart. The larger of planes is
    continuous. Raises ValueError with too few points, or times that are not above zero.
    """
    matrix = np.array([(1.0, *pair) for pair in work], dtype=np.float64)
    times = np.array(seconds, dtype=np.float64)
    if len(times) < FEWEST:
        raise ValueError(f"{len(times)} points are too few for a fit; measure at least {FEWEST}")
    if not np.all(np.isfinite(times)) or np.any(times <= 0):
        raise ValueError("a step cannot take no time; measure again")
    single = [fit_plane(matrix, times)]
    error = _error(single, matrix, times)
    if error <= _WORTH:
        return single
    double = _two_planes(matrix, times)
    return double if double and _error(double, matrix, times) < (1 - _TAKES_AWAY) * error else single


def fit_plane(matrix: Matrix, times: Vector) -> Vector:
    """Coefficients of the columns of `matrix`. Three columns have eight supports, so all of them are tried."""
    relative = matrix / times[:, None]
    scale = relative.max(axis=0)
    columns = [column for column in range(matrix.shape[1]) if scale[column] > 0]
    best, least = np.zeros(matrix.shape[1]), np.inf
    for size in range(1, len(columns) + 1):
        for support in combinations(columns, size):
            chosen = list(support)
            part = relative[:, chosen] / scale[chosen]
            found = np.linalg.lstsq(part, np.ones(len(times)), rcond=None)[0]
            missed = float(np.sum((part @ found - 1.0) ** 2))
            if np.all(found >= 0) and missed < least:
                best, least = np.zeros(matrix.shape[1]), missed
                best[chosen] = found / scale[chosen]
    return best


def _two_planes(matrix: Matrix, times: Vector) -> list[Vector]:
    """The best that is found from splits at several sizes of step; empty when there are too few points."""
    best: list[Vector] = []
    least = np.inf
    order = np.argsort(times, kind="stable")
    for share in (0.25, 0.5, 0.75):
        first = np.zeros(len(times), dtype=np.bool_)
        first[order[: round(share * len(times))]] = True
        for _ in range(_ROUNDS):
            if min(first.sum(), (~first).sum()) < FEWEST:
                break
            planes = [fit_plane(matrix[part], times[part]) for part in (first, ~first)]
            error = _error(planes, matrix, times)
            if error < least:
                best, least = planes, error
            larger = matrix @ planes[0] >= matrix @ planes[1]
            if np.array_equal(larger, first):
                break
            first = larger
    return best


def _error(planes: Sequence[Vector], matrix: Matrix, times: Vector) -> float:
    """Root of the mean squared relative error of the larger plane."""
    larger = np.max([matrix @ plane for plane in planes], axis=0)
    return float(np.sqrt(np.mean((larger / times - 1.0) ** 2)))
