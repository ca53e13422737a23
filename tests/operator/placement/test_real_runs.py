"""Four runs of OPT-13B on A100s that DistServe's authors published: arrivals as they were, and what was measured."""

from pathlib import Path as File

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape
from distserve_operator.placement.simulating import simulate
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.reading import read_trace

DATA = File(__file__).parent / "data"
SPLIT = Disaggregated(Pool(Shape(2, 1), 1), Pool(Shape(1, 1), 1), units=1, segments=1)
ALONE = Colocated(Pool(Shape(1, 1), 1))
# file, engine, attainment in percent at TTFT 200 and 250 ms with TPOT 100 ms, TTFT and TPOT p50 and p90 in ms
RUNS: list[tuple[str, str, Placement, tuple[float, float], tuple[float, ...]]] = [
    ("opt13b_2x1_1x1_300req_3rps.csv", "distserve", SPLIT, (96.3, 98.3), (83.0, 153.1, 38.7, 43.5)),
    ("opt13b_2x1_1x1_300req_6rps.csv", "distserve", SPLIT, (90.7, 95.3), (94.7, 198.6, 58.6, 71.1)),
    ("opt13b_2x1_1x1_600req_6rps.csv", "distserve", SPLIT, (60.7, 64.7), (98.8, 200.7, 75.9, 576.1)),
    ("opt13b_vllm_tp1_150req_1.5rps.csv", "vllm", ALONE, (67.3, 84.7), (146.1, 265.7, 41.9, 58.5)),
]


@pytest.mark.parametrize(("file", "engine", "placement", "attained", "measured"), RUNS)
def test_simulated_runs_are_as_measured(
    file: str, engine: str, placement: Placement, attained: tuple[float, float], measured: tuple[float, ...]
) -> None:
    trace = read_trace(DATA / file)
    for ttft, percent in zip((0.2, 0.25), attained, strict=True):
        (seen,) = simulate(question(engine=engine, slo=Slo(ttft, 0.1)), placement, trace=trace)
        assert 100 * seen.attainment == pytest.approx(percent, abs=2)
    assert seen.ttft is not None
    assert seen.tpot is not None
    simulated = (seen.ttft.p50, seen.ttft.p90, seen.tpot.p50, seen.tpot.p90)
    assert [1e3 * seconds for seconds in simulated] == pytest.approx(list(measured), rel=0.1)
