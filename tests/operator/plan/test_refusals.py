"""What is answered without a search."""

from typing import Any

import pytest
from distserve_testing.deployments import auto_resource

from distserve_operator.api.parsing import parse
from distserve_operator.plan.refusals import refusal


@pytest.mark.parametrize(
    ("options", "reason", "texts"),
    [
        (
            {"uri": "hf://org/opt-13c"},
            "UnknownModel",
            ["'org/opt-13c' is not known", "OPT-13B", "placement.type Manual"],
        ),
        ({"uri": "file:///srv/mine"}, "UnknownModel", ["'mine' is not known"]),
        ({"cluster": {"affinity": "Low"}}, "UnsupportedShape", ["cluster.affinity is Low", "choose Auto or High"]),
    ],
)
def test_the_field_is_named_and_what_would_do(options: dict[str, Any], reason: str, texts: list[str]) -> None:
    found = refusal(parse(auto_resource(**options)))
    assert found is not None
    assert found.reason == reason
    assert all(text in found.message for text in texts), found.message


@pytest.mark.parametrize(
    "options", [{}, {"cluster": {"affinity": "High"}}, {"cluster": {"affinity": "Low"}, "mode": "Plan"}]
)
def test_all_else_is_searched(options: dict[str, Any]) -> None:
    assert refusal(parse(auto_resource(**options))) is None
