"""What a plan says holds for as long as anybody looks."""

from typing import Any

import pytest
from distserve_testing.questions import CHATBOT_66B, question

from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.shape import Colocated, Pool, Shape
from distserve_operator.placement.simulating import simulate
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import Fixed, LogNormal
from distserve_operator.placement.workload.path import Path

H100: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "H100-80GB"}
CASES: dict[str, dict[str, Any]] = {
    "memory is short": {"model": "opt-66b", "per_node": 8, "nodes": 4, "slo": CHATBOT_66B},
    "another path": {"model": "opt-66b", "per_node": 8, "slo": CHATBOT_66B, "seed": 3},
    "thousands in flight": {"gpu": "L40S", "model": "qwen2.5-1.5b", "slo": Slo(1.0, 0.04), "lengths": Fixed(50, 1500)},
    "long outputs": {**H100, "slo": Slo(0.3, 0.03), "lengths": LogNormal(100, 1.0, 2000, 1.0)},
    "outputs of any length": {
        "gpu": "H200",
        "model": "qwen3-14b",
        "per_node": 4,
        "slo": Slo(2.0, 0.1),
        "lengths": LogNormal(60, 2.0, 600, 1.5),
    },
    "a pipeline fills up slowly": {
        **H100,
        "per_node": 8,
        "slo": Slo(1.0, 0.05),
        "lengths": LogNormal(300, 1.0, 1000, 1.2),
    },
    "memory is full for minutes": {
        "gpu": "H200",
        "model": "qwen3-32b",
        "per_node": 4,
        "slo": Slo(2.0, 0.06),
        "lengths": LogNormal(200, 1.0, 3000, 0.7),
    },
    "nearly all in time": {**H100, "slo": Slo(0.5, 0.03, 0.99), "lengths": LogNormal(760, 0.7, 190, 1.2)},
    "a tight pause": {**H100, "slo": Slo(0.4, 0.03, gap=0.06), "lengths": LogNormal(1500, 0.8, 150, 1.0)},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plan_holds_its_targets_a_little_below_its_goodput_for_200_000_requests(case: dict[str, Any]) -> None:
    asked = question(**case)
    found = plan(asked)
    assert found.chosen is not None
    assert found.served is not None
    assert found.served.attainment >= asked.slo.attainment - 1e-9
    path = asked.workload.sample(99, 200_000)
    slower = Path(path.arrivals / (0.95 * found.chosen.goodput), path.prompts, path.outputs)
    (seen,) = simulate(asked, found.chosen.placement, trace=slower)
    assert seen.attainment >= asked.slo.attainment


def test_what_a_path_is_too_short_to_fill_is_not_said_to_go_on() -> None:
    asked = question(**H100, slo=Slo(0.3, 0.03), lengths=LogNormal(760, 0.7, 190, 1.2))
    evaluator = Evaluator(asked, asked.workload.sample(0, 3000))
    fleet = Colocated(Pool(Shape(1, 1), 40), 1024)
    told = {rate: evaluator.goes_on(fleet, rate, evaluator.watch(fleet, rate)) for rate in (50.0, 900.0, 2000.0)}
    assert told == {50.0: True, 900.0: None, 2000.0: False}
