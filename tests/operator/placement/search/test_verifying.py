"""What a candidate holds does not depend on what was expected of it."""

import pytest
from distserve_testing.questions import question

from distserve_operator.placement.question import FiniteWindow
from distserve_operator.placement.rates import LEVELS
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.joint import WIDEST
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Colocated, Pool, Shape

ALONE = Colocated(Pool(Shape(1, 1), 1))


@pytest.mark.parametrize("expected", [0, 600, (1 << LEVELS) - 1])
def test_a_candidate_is_found_however_far_from_what_was_expected(expected: int) -> None:
    searched = Evaluator(asked := question(window=FiniteWindow()), path_of(asked))
    near = searched.ladder.level(ALONE, searched.goodput(ALONE))
    level = Verifier.of(asked, searched).level(ALONE, expected)
    assert level is not None
    assert abs(level - near) <= WIDEST, "of so few requests a higher rate may do better than a lower one"
