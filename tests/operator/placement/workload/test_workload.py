"""Sample paths have the lengths and arrivals that were asked for, and are the same for the same seed (B37)."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_operator.placement.workload.arrivals import Arrivals, Gamma, Poisson, Regular
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import Empirical, Fixed, Lengths, LogNormal
from distserve_operator.placement.workload.path import Path
from distserve_operator.placement.workload.reading import sharegpt_lengths
from distserve_operator.placement.workload.workload import Workload

PAIRS = Empirical(((10, 1), (20, 2), (30, 3)))
KINDS = [Fixed(512, 64), LogNormal(760, 0.7, 190, 1.2), PAIRS]
PROCESSES = [Poisson(), Gamma(2.0), Regular()]


def equal(one: Path, other: Path) -> bool:
    return (
        np.array_equal(one.arrivals, other.arrivals)
        and np.array_equal(one.prompts, other.prompts)
        and np.array_equal(one.outputs, other.outputs)
    )


def prefix(path: Path, count: int) -> Path:
    return Path(path.arrivals[:count], path.prompts[:count], path.outputs[:count])


@pytest.mark.parametrize("lengths", KINDS, ids=repr)
@pytest.mark.parametrize("arrivals", PROCESSES, ids=repr)
def test_a_seed_gives_one_path_of_which_fewer_requests_are_a_prefix(lengths: Lengths, arrivals: Arrivals) -> None:
    workload = Workload(lengths, arrivals)
    path = workload.sample(3, 500)
    assert equal(path, workload.sample(3, 500))
    assert equal(prefix(path, 123), workload.sample(3, 123))
    assert not equal(path, Workload(lengths, Poisson()).sample(4, 500))


@pytest.mark.parametrize("arrivals", PROCESSES, ids=repr)
def test_one_request_comes_a_second(arrivals: Arrivals) -> None:
    path = Workload(Fixed(1, 1), arrivals).sample(0, 100_000)
    assert path.arrivals[-1] == pytest.approx(100_000, rel=0.03)
    assert path.at(4.0)[-1] == path.arrivals[-1] / 4


@pytest.mark.parametrize(
    ("arrivals", "variation"), [(Poisson(), 1.0), (Gamma(2.0), 2.0), (Gamma(0.3), 0.3), (Regular(), 0)]
)
def test_gaps_vary_as_asked(arrivals: Arrivals, variation: float) -> None:
    gaps = np.diff(Workload(Fixed(1, 1), arrivals).sample(0, 200_000).arrivals)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03)


def test_lognormal_lengths_have_their_mean_and_variation() -> None:
    path = Workload(LogNormal(760, 0.7, 190, 1.2)).sample(0, 200_000)
    assert path.prompts.mean() == pytest.approx(760, rel=0.01)
    assert path.prompts.std() / path.prompts.mean() == pytest.approx(0.7, rel=0.02)
    assert path.outputs.mean() == pytest.approx(190, rel=0.01)
    assert path.outputs.std() / path.outputs.mean() == pytest.approx(1.2, rel=0.05)


def test_pairs_stay_pairs() -> None:
    path = Workload(PAIRS).sample(0, 1000)
    assert np.array_equal(path.prompts, path.outputs * 10)
    assert set(path.outputs) == {1, 2, 3}


def test_the_first_lengths_come_in_the_order_of_the_file_and_then_again() -> None:
    path = Workload(PAIRS).first(0, 5)
    assert path.prompts.tolist() == [10, 20, 30, 10, 20]
    assert path.outputs.tolist() == [1, 2, 3, 1, 2]
    assert np.array_equal(path.arrivals, Workload(PAIRS).sample(0, 5).arrivals)


@given(
    mean_in=st.floats(1, 1500),
    mean_out=st.floats(1, 500),
    cv_in=st.floats(0, 100),
    cv_out=st.floats(0, 100),
    longest=st.integers(2000, 4096),
)
@settings(max_examples=30)
def test_whatever_the_tail_requests_fit_the_model(
    mean_in: float, mean_out: float, cv_in: float, cv_out: float, longest: int
) -> None:
    workload = Workload(LogNormal(mean_in, cv_in, mean_out, cv_out), longest=longest)
    path = workload.sample(0, 2000)
    assert path.prompts.min() >= 1
    assert path.outputs.min() >= 1
    assert (path.prompts + path.outputs).max() <= longest
    assert workload.mean_prompt + workload.mean_output <= longest


def test_means_are_those_of_what_is_simulated() -> None:
    bounded = Workload(LogNormal(1738, 0.7, 91, 0.5), longest=2048)
    path = bounded.sample(7, 100_000)
    assert bounded.mean_prompt == pytest.approx(path.prompts.mean(), rel=0.01)
    assert bounded.mean_output == pytest.approx(path.outputs.mean(), rel=0.01)
    assert bounded.mean_prompt < Workload(LogNormal(1738, 0.7, 91, 0.5)).mean_prompt
    assert (Workload(PAIRS).mean_prompt, Workload(PAIRS).mean_output) == (20, 2)
    assert (Workload(Fixed(512, 64)).mean_prompt, Workload(Fixed(512, 64)).mean_output) == (512, 64)


def test_the_shipped_lengths_are_the_papers_chatbot() -> None:
    workload = Workload(sharegpt_lengths(), longest=2048)
    assert workload.mean_prompt == pytest.approx(758.7, abs=0.1)
    assert workload.mean_output == pytest.approx(186.3, abs=0.1)
    assert workload.first(0, 2).prompts.tolist() == [55, 829]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (Fixed(2000, 49), r"a request has 2000 \+ 49 tokens, more than the model's context of 2048"),
        (LogNormal(2000, 0, 49, 0), r"the mean request has 2000 \+ 49 tokens"),
        (Empirical(((1, 1), (2040, 9))), r"the request of row 2 has 2040 \+ 9 tokens"),
    ],
)
def test_lengths_above_the_context_are_named(lengths: Lengths, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Workload(lengths, longest=2048)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0])
def test_a_mean_that_is_no_length_is_named(value: float) -> None:
    with pytest.raises(WorkloadError, match=r"the mean of outputs is .*: expected 1 to"):
        LogNormal(100, 1, value, 1)
    with pytest.raises(WorkloadError, match="the variation of arrivals is"):
        Gamma(value)


def test_equal_workloads_are_equal_whatever_process_they_are_in() -> None:
    workload = Workload(sharegpt_lengths(), Gamma(2.0), 2048)
    copy = pickle.loads(pickle.dumps(workload))
    assert copy == workload
    assert hash(copy) == hash(workload)
    assert copy != Workload(sharegpt_lengths(), Gamma(2.5), 2048)
