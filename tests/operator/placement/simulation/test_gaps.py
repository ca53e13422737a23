"""The longest wait between two tokens: whose it is when prompts go first."""

import numpy as np
import pytest
from distserve_testing.questions import question

from distserve_operator.placement.shape import Colocated, Pool, Shape
from distserve_operator.placement.simulating import simulate as simulate_placement
from distserve_operator.placement.simulation.running import Mixed, simulate
from distserve_operator.placement.simulation.state import DecodeRules, MixedRules, Targets
from distserve_operator.placement.workload.path import Path

STEP = 0.01
PROMPTS = MixedRules(np.array([[0.02, 1e-4, 0.0]]), 512, chunked=False, overlap=0.0, context_seconds=0.0)
DECODE = DecodeRules(np.array([[STEP, 0.0, 0.0]]), 1, 1, 64, 1000, 0)


def gaps(arrivals: list[float], prompts: list[int], outputs: list[int]) -> list[float]:
    count = len(arrivals)
    targets = Targets(9e9, 9e9, 9e9, 0.0, 0.0, 0, count, count, 0.1, 0, joint=True)
    path = Path(np.array(arrivals), np.array(prompts), np.array(outputs))
    return simulate(Mixed(PROMPTS, DECODE), path, 1.0, targets).gap.tolist()


def test_requests_of_one_token_have_no_part_in_the_percentiles_of_what_follows() -> None:
    path = Path(np.arange(4.0), np.full(4, 100), np.array([1, 1, 1, 20]))
    (seen,) = simulate_placement(question(), Colocated(Pool(Shape(1, 1), 1)), trace=path)
    for latency in (seen.tpot, seen.gap):
        assert latency is not None
        assert latency.p50 == latency.p99 > 0
    (seen,) = simulate_placement(question(), Colocated(Pool(Shape(1, 1), 1)), trace=path.first(3))
    assert (seen.tpot, seen.gap) == (None, None)


def test_a_request_alone_waits_a_step_for_each_token() -> None:
    assert gaps([0.0], [400], [20]) == pytest.approx([STEP])


def test_a_prompt_delays_a_token_of_those_that_run_and_none_of_its_own() -> None:
    assert gaps([0.0, 0.105], [100, 200], [30, 30]) == pytest.approx([0.02 + 200e-4 + STEP, STEP])


def test_a_prompt_right_behind_another_delays_the_second_token_of_that() -> None:
    assert gaps([0.0, 0.001], [100, 200], [30, 30]) == pytest.approx([0.02 + 200e-4 + STEP, STEP])
