import numpy as np
import pytest
from distserve_testing.stepwise_decode import decode
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_operator.placement.simulation.running import simulate
from distserve_operator.placement.simulation.state import DecodeRules, LinkRules, PrefillRules, SplitRules, Targets
from distserve_operator.placement.workload.path import Path

PLANES = np.array([[0.02, 6e-7, 4e-5], [0.007, 5.8e-7, 1.6e-4]])
NOBODY = PrefillRules(np.zeros((1, 3)), 0, 1, 0.0, 1, 1, 1)
NO_LINK = LinkRules(0.0, 0.0, blocking=False, units=1)


def everything(count: int) -> Targets:
    return Targets(9e9, 9e9, 9e9, 0.0, 0.0, 0, count, count, 0.1, 0, joint=True)


@st.composite
def paths(draw: st.DrawFn) -> Path:
    count = draw(st.integers(1, 60))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))
    arrivals = np.cumsum(numbers.exponential(draw(st.sampled_from([0.01, 0.1, 1.0])), count))
    return Path(arrivals, numbers.integers(1, 400, count), numbers.integers(1, 120, count))


@settings(max_examples=60)
@given(path=paths(), blocks=st.sampled_from([40, 60, 100, 4000]), pp=st.integers(1, 3), most=st.sampled_from([3, 64]))
def test_many_steps_at_once_end_where_single_steps_do(path: Path, blocks: int, pp: int, most: int) -> None:
    rules = DecodeRules(PLANES, 1, pp, most, blocks, 0)
    outcome = simulate(SplitRules(NOBODY, rules, NO_LINK), path, 1.0, everything(len(path)))
    seen = decode(rules, path.arrivals.tolist(), path.prompts.tolist(), path.outputs.tolist())
    assert outcome.put_back == seen.put_back
    np.testing.assert_allclose(outcome.tpot, seen.tpot, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(outcome.gap, seen.gap, rtol=1e-9, atol=1e-12)


def test_the_cases_above_put_requests_back() -> None:
    numbers = np.random.default_rng(1)
    path = Path(np.cumsum(numbers.exponential(0.01, 60)), numbers.integers(1, 400, 60), numbers.integers(40, 120, 60))
    rules = DecodeRules(PLANES, 1, 1, 64, 60, 0)
    outcome = simulate(SplitRules(NOBODY, rules, NO_LINK), path, 1.0, everything(60))
    assert outcome.put_back > 10
    assert np.isfinite(outcome.tpot).all()


@pytest.mark.parametrize("size", [1, 17])
def test_a_request_that_no_instance_can_hold_fails_and_holds_nobody_up(size: int) -> None:
    path = Path(np.arange(3.0), np.array([10, 16 * size, 10]), np.array([5, 5, 5]))
    rules = DecodeRules(PLANES, 1, 1, 64, size, 0)
    outcome = simulate(SplitRules(NOBODY, rules, NO_LINK), path, 1.0, everything(3))
    assert np.isfinite(outcome.tpot).tolist() == [True, False, True]
    assert np.isinf(outcome.ttft[1])
