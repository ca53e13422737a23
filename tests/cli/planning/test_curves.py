"""The figures are drawn at the rate at which they tell most, with all targets scaled alike."""

import math

import numpy as np
import pytest

from distserve_cli.planning.curves import faster, telling_rate
from distserve_operator.placement.answer import Percentiles, Served
from distserve_operator.placement.workload.path import Path

NONE = Percentiles(math.inf, math.inf, math.inf)


def served(rate: float, attainment: float) -> Served:
    return Served(rate, attainment, NONE, NONE, NONE)


@pytest.mark.parametrize(
    ("attainments", "rate"), [([1.0, 0.95, 0.2], 2), ([1.0, 0.89, 0.92], 3), ([0.5, 0.4, 0.2], 1), ([1, 1, 1], 3)]
)
def test_targets_are_scaled_at_the_highest_rate_that_holds_them(attainments: list[float], rate: float) -> None:
    assert telling_rate([served(place + 1, one) for place, one in enumerate(attainments)], 0.9) == rate


def test_a_faster_trace_has_the_same_requests_closer_together() -> None:
    trace = Path(np.array([0.0, 3.0]), np.array([1, 2]), np.array([3, 4]))
    assert faster(trace, 2).arrivals.tolist() == [0, 1.5]
    assert faster(trace, 2).outputs.tolist() == [3, 4]
