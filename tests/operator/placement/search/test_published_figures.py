"""Figures of the paper, with its coefficients."""

import numpy as np
import pytest
from distserve_testing.questions import CHATBOT_13B, CHATBOT_66B, question

from distserve_operator.placement.question import FiniteWindow, Question
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import Fixed

ONE = Shape(1, 1)


def figure_1() -> Question:
    """OPT-13B, 512 tokens in and 64 out, on vLLM's step times."""
    return question(slo=Slo(0.4, 0.04), lengths=Fixed(512, 64), engine="vllm", window=FiniteWindow(3000))


def evaluators_of(asked: Question) -> list[Evaluator]:
    return [Evaluator(asked, asked.workload.sample(seed, 3000)) for seed in range(5)]


def mean_goodput(asked: Question, placement: Placement | None) -> float:
    """Over five seeds; None: of one decode instance alone."""
    evaluators = evaluators_of(asked)
    if placement is None:
        return float(np.mean([one.decode_goodput(Pool(ONE, 1)) for one in evaluators]))
    return float(np.mean([one.goodput(placement) for one in evaluators]))


def test_figure_1() -> None:
    colocated = mean_goodput(figure_1(), Colocated(Pool(ONE, 1)))
    assert 1.6 <= colocated <= 1.9
    assert 10 <= mean_goodput(figure_1(), None) <= 11.5
    assert 7 <= float(np.mean([one.prefill_goodput(Pool(ONE, 1)) for one in evaluators_of(figure_1())])) <= 8
    split = Disaggregated(Pool(ONE, 2), Pool(ONE, 1), units=1, segments=1)
    assert mean_goodput(figure_1(), split) / 3 >= 2.0 * colocated


def test_the_finite_window_rule_gives_the_published_goodput() -> None:
    asked = question(window=FiniteWindow(300))
    evaluator = Evaluator(asked, asked.workload.first(0, 300))
    chosen = Disaggregated(Pool(Shape(2, 1), 1), Pool(ONE, 1), units=1, segments=1)
    assert 2.2 <= evaluator.goodput(chosen) / 3 <= 2.45


@pytest.mark.parametrize(
    ("model", "slo", "table_3"),
    [
        ("opt-13b", CHATBOT_13B, Disaggregated(Pool(Shape(2, 1), 1), Pool(ONE, 1), 1, 1)),
        ("opt-66b", CHATBOT_66B, Disaggregated(Pool(Shape(4, 1), 1), Pool(Shape(2, 2), 1), 1, 1)),
    ],
)
def test_a_plan_is_no_worse_than_the_placement_of_table_3(model: str, slo: Slo, table_3: Disaggregated) -> None:
    asked = question(model, nodes=1, per_node=8, slo=slo)
    found = plan(asked)
    assert found.chosen is not None
    searched = Evaluator(asked, asked.workload.sample(0, 40_000))
    verifier = Verifier.of(asked, searched)
    near = searched.ladder.level(table_3, searched.goodput(table_3))
    published = verifier.measure(table_3, verifier.level(table_3, near))
    assert found.chosen.per_device >= published.per_device
