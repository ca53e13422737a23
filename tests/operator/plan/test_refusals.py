"""What is answered without a search."""

from typing import Any

import pytest
from distserve_testing.deployments import auto_resource, deployment

from distserve_operator.api.parsing import parse
from distserve_operator.observed.search import NoNode
from distserve_operator.plan.refusals import refusal, too_large


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


def test_an_instance_that_no_node_is_large_enough_for_is_refused_with_its_numbers() -> None:
    """B35."""
    fleet = deployment(prefill={"tp": 4, "pp": 2}, decode={"tp": 4}, max_devices=99)
    assert too_large(fleet.cluster, fleet.placement, 8) is None
    found = too_large(fleet.cluster, fleet.placement, 4)
    assert found is not None
    assert found.message.startswith(
        "an instance of placement.prefill takes 8 devices (tp 4 x pp 2), but no CPU node has more than 4, and this"
    )
    both = too_large(fleet.cluster, fleet.placement, 3)
    assert isinstance(both, NoNode)
    assert "placement.decode takes 4 devices (tp 4 x pp 1)" in both.message
