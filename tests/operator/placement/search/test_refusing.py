"""What cannot be had is said with its cause: too few devices, nodes too small, or links too slow."""

from typing import Any

import pytest
from distserve_testing.questions import CHATBOT_66B, question

from distserve_operator.placement.device import Inventory
from distserve_operator.placement.question import Affinity
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.paper import largest_that_fits
from distserve_operator.placement.search.spaces import fits
from distserve_operator.placement.shape import Disaggregated, Pool, Shape
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import Fixed, LogNormal

GIGABIT = 1e9 / 8
SLOW_66B: dict[str, Any] = {
    "model": "opt-66b",
    "per_node": 8,
    "nodes": 2,
    "slo": CHATBOT_66B,
    "affinity": Affinity.HIGH,
}

# A prompt takes hours.
SLOWEST: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "CPU", "slo": Slo(1e6, 1e4), "lengths": Fixed(7000, 2)}
# The longest prompt of the path of the search is just in time, on others there are longer ones.
LONGEST: dict[str, Any] = {"slo": Slo(0.18, 1.0, 1.0), "lengths": LogNormal(200, 0.5, 2, 0.0)}

# with how the binding starts, and what is said besides
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"per_node": 1, "only": "disaggregated"}, "Devices: no prefill instance fits 1 free device on 1 node", ""),
    ({"per_node": 0}, "Devices: there are no free devices", ""),
    ({"per_node": 1, "rule": "paper"}, "Devices: no prefill instance fits 1 free device", ""),
    (
        {"per_node": 1, "rule": "paper", "affinity": Affinity.HIGH},
        "Devices: the paper's rule takes 2 devices",
        "the joint rule tries others",
    ),
    ({"per_node": 2, "rule": "paper", "rate": 1000.0}, "Devices: the paper's rule takes ", "2 devices hold"),
    ({"model": "opt-66b", "nodes": 8, "per_node": 1}, "Devices: no node has 2 free devices", "for tp 2, 3, 4, 8 alone"),
    ({**SLOW_66B, "only": "disaggregated", "network_bytes_per_second": GIGABIT}, "Link: the KV of a request", "TPOT: "),
    ({"slo": Slo(0.25, 0.001)}, "TPOT: even on an idle fleet", ""),
    ({"slo": Slo(0.25, 0.001, 1.0), "only": "disaggregated", "rate": 5.0}, "TPOT: even on an idle fleet", ""),
    ({"slo": Slo(0.25, 0.001), "only": "disaggregated"}, "TPOT: even on an idle fleet", ""),
    (
        {**SLOWEST, "per_node": 8},
        "Rate: an idle fleet meets the targets, but none was found to do so at 0.001 req/s",
        "",
    ),
    (
        {**LONGEST, "per_node": 1},
        "Rate: an idle fleet meets the targets, but none that was tried on fresh paths (5 fleets)",
        "",
    ),
    ({"per_node": 2, "slo": Slo(0.15, 0.1, 0.97)}, "Attainment: 94.03 % on an idle fleet, not 97 %", ""),
]


@pytest.mark.parametrize(("case", "binding", "besides"), CASES, ids=str)
def test_what_cannot_be_had_has_its_cause_and_no_more_devices_than_there_are(
    case: dict[str, Any], binding: str, besides: str
) -> None:
    """B35."""
    asked = question(**case)
    found = plan(asked)
    assert not found.feasible
    assert found.binding.startswith(binding)
    assert besides in " ".join(found.reasons)
    assert found.chosen is None or fits(found.chosen.placement, asked.inventory)


def test_a_link_that_keeps_goodput_low_is_what_binds() -> None:
    slow: dict[str, Any] = {"nodes": 2, "affinity": Affinity.HIGH, "only": "disaggregated", "slo": Slo(1.0, 0.2)}
    found = plan(question(**slow, network_bytes_per_second=40 * GIGABIT))
    assert found.binding.startswith("Link: ")
    assert not plan(question(**slow, network_bytes_per_second=800 * GIGABIT)).binding.startswith("Link: ")


def test_kv_is_that_of_requests_that_move() -> None:
    fixed: dict[str, Any] = {"only": "disaggregated", "slo": Slo(1.0, 0.2)}
    still, moving = (plan(question(**fixed, lengths=Fixed(500, outputs))) for outputs in (1, 2))
    assert still.feasible
    assert still.kv is None
    assert moving.kv is not None
    assert moving.kv.bytes == pytest.approx(500 * question().model.kv_bytes_per_token)


def test_what_the_papers_rule_takes_to_hold_a_rate_is_not_believed() -> None:
    """It looks at each phase alone, and at no link between them."""
    found = plan(question(rule="paper", nodes=2, per_node=8, affinity=Affinity.HIGH, lengths=Fixed(512, 64), rate=5.0))
    assert found.chosen is not None
    assert found.served is not None
    assert not found.feasible
    assert found.served.rate == found.chosen.goodput < 5
    assert found.binding.startswith("Link: ")
    assert found.reasons[0].endswith("they hold 10.24 req/s by its own account")


def test_a_fleet_of_the_papers_rule_is_not_said_to_be_the_smallest() -> None:
    found = plan(question(rule="paper", per_node=2, rate=2.0))
    assert found.chosen is not None
    assert found.feasible
    assert found.reasons == (
        "the paper's rule takes 2 devices for 2 req/s (1xTP1 -> 1xTP1): they hold 3.092 req/s by its own account",
        f"1xTP1 -> 1xTP1: its 2 devices hold {found.chosen.goodput:.4g} req/s on fresh paths",
    )


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (Disaggregated(Pool(Shape(1, 1), 6), Pool(Shape(1, 1), 4)), "3xTP1 -> 2xTP1"),
        (Disaggregated(Pool(Shape(1, 1), 6), Pool(Shape(1, 1), 3), units=3, segments=1), "4xTP1 -> 2xTP1"),
        (Disaggregated(Pool(Shape(2, 1), 1), Pool(Shape(4, 1), 1)), "None"),
    ],
)
def test_a_rule_that_asks_for_too_much_gets_what_fits(wanted: Disaggregated, most: str) -> None:
    found = largest_that_fits(wanted, Inventory((5,), 5) if wanted.segments is None else Inventory((4, 4), 6))
    assert str(found) == most
