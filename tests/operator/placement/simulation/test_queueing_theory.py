"""The three formulas of the paper's section 3.1, M/D/1 with an execution time D and a speed-up K."""

import numpy as np
import pytest

from distserve_operator.placement.simulation.running import simulate
from distserve_operator.placement.simulation.state import DecodeRules, LinkRules, PrefillRules, SplitRules, Targets
from distserve_operator.placement.workload.path import Path

D = 0.1
REQUESTS = 200_000
NO_LINK = LinkRules(0.0, 0.0, blocking=False, units=1)
NOBODY = DecodeRules(np.zeros((1, 3)), 0, 1, 1, 1, 0)


def mean_ttft(rate: float, seconds: float, pp: int = 1) -> float:
    """Of single prompts, each a batch of its own."""
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1.0, REQUESTS))
    path = Path(arrivals, np.ones(REQUESTS, np.int64), np.ones(REQUESTS, np.int64))
    prefill = PrefillRules(np.array([[seconds, 0.0, 0.0]]), 1, pp, 0.0, 1, 1, 1_000_000)
    targets = Targets(9e9, 9e9, 9e9, 0.0, 0.0, 0, REQUESTS, REQUESTS, 0.1, 0, joint=True)
    return float(simulate(SplitRules(prefill, NOBODY, NO_LINK), path, rate, targets).ttft.mean())


def single(rate: float) -> float:
    return D + rate * D**2 / (2 * (1 - rate * D))


def inter_op(rate: float) -> float:
    return D + rate * D**2 / (4 * (2 - rate * D))


def intra_op(rate: float, speed_up: float) -> float:
    return D / speed_up + rate * D**2 / (2 * speed_up * (speed_up - rate * D))


@pytest.mark.parametrize("rate", [1.0, 5.0, 8.0])
def test_one_instance(rate: float) -> None:
    assert mean_ttft(rate, D) == pytest.approx(single(rate), rel=0.02)


@pytest.mark.parametrize("rate", [1.0, 8.0, 16.0])
def test_two_stages(rate: float) -> None:
    assert mean_ttft(rate, D, pp=2) == pytest.approx(inter_op(rate), rel=0.02)


@pytest.mark.parametrize("speed_up", [1.5, 1.8])
@pytest.mark.parametrize("rate", [1.0, 8.0, 12.0])
def test_two_devices_for_each_layer(rate: float, speed_up: float) -> None:
    assert mean_ttft(rate, D / speed_up) == pytest.approx(intra_op(rate, speed_up), rel=0.02)


@pytest.mark.parametrize("speed_up", [1.5, 1.7])
def test_stages_win_above_the_rate_at_which_the_formulas_cross(speed_up: float) -> None:
    rates = np.arange(0.5, 10 * speed_up - 0.5, 0.1)
    crossing = next(rate for rate in rates if inter_op(rate) < intra_op(rate, speed_up))
    for rate, stages_win in ((crossing * 0.9, False), (crossing * 1.1, True)):
        assert (mean_ttft(rate, D, pp=2) < mean_ttft(rate, D / speed_up)) == stages_win
