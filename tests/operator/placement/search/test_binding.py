"""What is said to bind does: were it looser a fleet would hold more, and were anything else it would not."""

from dataclasses import replace
from typing import Any

import pytest
from distserve_testing.questions import CHATBOT_66B, question

from distserve_operator.placement.question import Question
from distserve_operator.placement.search.binding import binding
from distserve_operator.placement.search.evaluating import Evaluator, path_of
from distserve_operator.placement.search.verifying import Verifier
from distserve_operator.placement.shape import Colocated, Disaggregated, Placement, Pool, Shape
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import Fixed, LogNormal

LLAMA: dict[str, Any] = {"model": "llama-3.1-8b", "per_node": 8}
LONG: dict[str, Any] = {**LLAMA, "slo": Slo(1.0, 0.05), "lengths": Fixed(100, 4000)}
UNEVEN: dict[str, Any] = {**LLAMA, "gpu": "H100-80GB", "slo": Slo(1.0, 0.03), "lengths": LogNormal(500, 3, 500, 3)}
SPLIT = Disaggregated(Pool(Shape(1, 1), 3), Pool(Shape(1, 1), 4), segments=1)

# a question, a fleet, about what it holds, and what binds
CASES: dict[str, tuple[dict[str, Any], Placement, float, str]] = {
    "prompts wait": ({}, Colocated(Pool(Shape(2, 1), 2), 4096), 10.0, "TTFT: "),
    "steps are long": ({"slo": Slo(0.25, 0.04)}, Colocated(Pool(Shape(2, 1), 1), 4096), 3.1, "TPOT: "),
    "prompts wait more often than tokens": (
        {"per_node": 8, "slo": Slo(0.25, 0.1, gap=0.15)},
        SPLIT,
        18.0,
        "TTFT: ",
    ),
    "one token waits": ({"slo": Slo(1.0, 0.2, gap=0.08)}, Colocated(Pool(Shape(1, 1), 4), 512), 10.0, "Gap: "),
    "blocks are given back": (
        {"slo": Slo(4.0, 0.2)},
        Colocated(Pool(Shape(1, 1), 4), 512),
        14.0,
        "Memory: above 14 req/s the KV caches are full, whatever the targets are: 1.65 % of the requests are put back",
    ),
    "blocks are given back on wide instances": (
        {"model": "opt-66b", "slo": CHATBOT_66B},
        Colocated(Pool(Shape(4, 1), 1), 1024),
        3.0,
        "Memory: ",
    ),
    "no target is near": ({"slo": Slo(1e6, 1e6)}, Colocated(Pool(Shape(1, 2), 1), 512), 7.0, "Memory: "),
    "full by arithmetic": (LONG, Colocated(Pool(Shape(1, 1), 8), 1024), 6.8, "Memory: "),
    "it fills up for long": (UNEVEN, Colocated(Pool(Shape(1, 2), 4), 256), 56.0, "Rate: "),
}


def looked_at(asked: Question, placement: Placement, about: float) -> tuple[int, str]:
    """The level that a fleet holds on fresh paths, and what binds."""
    evaluator = Evaluator(asked, path_of(asked))
    verifier = Verifier.of(asked, evaluator)
    level = verifier.level(placement, evaluator.ladder.level(placement, about))
    assert level is not None
    return level, binding(asked, evaluator, verifier, verifier.measure(placement, level))


def relaxed(slo: Slo) -> dict[str, Slo]:
    """The same targets with each one twice as loose."""
    found = {"TTFT": replace(slo, ttft=2 * slo.ttft), "TPOT": replace(slo, tpot=2 * slo.tpot)}
    return found if slo.gap is None else {**found, "Gap": replace(slo, gap=2 * slo.gap)}


@pytest.mark.parametrize(("case", "placement", "about", "told"), CASES.values(), ids=CASES)
def test_what_binds_is_what_would_have_to_be_looser(
    case: dict[str, Any], placement: Placement, about: float, told: str
) -> None:
    asked = question(**case)
    level, binds = looked_at(asked, placement, about)
    assert binds.startswith(told)
    targets = relaxed(asked.slo)
    name = told.split(":")[0]
    looser = {name: targets[name]} if name in targets else targets
    levels = {one: looked_at(replace(asked, slo=slo), placement, about)[0] for one, slo in looser.items()}
    if name in targets:
        assert levels[name] > level
    else:
        assert max(levels.values()) <= level + 1, levels
