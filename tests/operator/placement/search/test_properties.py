"""What must hold for whatever is asked."""

import math
from dataclasses import replace

from distserve_testing.questions import question
from hypothesis import given, settings
from hypothesis import strategies as st

from distserve_operator.placement.answer import Plan
from distserve_operator.placement.question import Affinity, Question, Steady
from distserve_operator.placement.search.answering import plan
from distserve_operator.placement.search.evaluating import Evaluator
from distserve_operator.placement.search.joint import best
from distserve_operator.placement.search.spaces import placements
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.lengths import LogNormal

SLOS = st.builds(
    Slo,
    ttft=st.sampled_from([0.001, 0.1, 0.25, 0.5]),
    tpot=st.sampled_from([0.001, 0.03, 0.05, 0.1, 1.0]),
    attainment=st.sampled_from([0.5, 0.9, 0.99, 1.0]),
    gap=st.sampled_from([None, 0.05, 0.3]),
)
LENGTHS = st.builds(
    LogNormal, st.sampled_from([1, 200, 900]), st.sampled_from([0.0, 1.0]), st.sampled_from([1, 100]), st.just(1.0)
)
QUICK = Steady(1000)  # long against these TTFTs, so all targets are judged on the same requests


def quickly(asked: Question) -> Evaluator:
    return Evaluator(asked, asked.workload.sample(0, 8000))


@settings(max_examples=30)
@given(slo=SLOS, lengths=LENGTHS, tighter=st.tuples(st.floats(0.2, 1), st.floats(0.2, 1), st.floats(0, 0.4)))
def test_a_tighter_target_never_raises_goodput(
    slo: Slo, lengths: LogNormal, tighter: tuple[float, float, float]
) -> None:
    """B37."""
    narrow = Slo(
        slo.ttft * tighter[0],
        slo.tpot * tighter[1],
        slo.attainment + (1 - slo.attainment) * tighter[2],
        min(0.1, slo.gap or 0.1),
    )
    asked = question(per_node=3, slo=slo, lengths=lengths, window=QUICK)
    wide, tight = quickly(asked), quickly(replace(asked, slo=narrow))
    for placement in list(placements(asked))[::7]:
        assert tight.goodput(placement) <= wide.goodput(placement)


@settings(max_examples=20)
@given(slo=SLOS, few=st.integers(1, 3), more=st.integers(0, 2))
def test_more_devices_never_lower_the_best_goodput(slo: Slo, few: int, more: int) -> None:
    """B37."""

    def highest(devices: int) -> int:
        kept = best(quickly(question(per_node=devices, slo=slo, window=QUICK)))
        return kept[0][1] if kept else -1

    assert highest(few + more) >= highest(few)


@settings(max_examples=10)
@given(
    ttft=st.sampled_from([0.2, 0.25, 0.3]),
    tpot=st.sampled_from([0.05, 0.075, 0.1, 0.15, 0.2]),
    attainment=st.sampled_from([0.9, 0.95]),
    tighter=st.sampled_from([(0.8, 1.0, 0.0), (1.0, 0.7, 0.0), (0.7, 0.5, 0.02), (1.0, 1.0, 0.04)]),
    devices=st.sampled_from([2, 4, 6]),
    rate=st.sampled_from([None, None, 6.0]),
)
def test_a_tighter_target_never_raises_what_is_planned(
    ttft: float, tpot: float, attainment: float, tighter: tuple[float, float, float], devices: int, rate: float | None
) -> None:
    """B37, of the answer itself: goodput per device, or with a rate the devices that hold it."""
    narrow = Slo(ttft * tighter[0], tpot * tighter[1], attainment + tighter[2])
    wide, tight = (
        plan(question(per_node=devices, slo=slo, rate=rate, window=QUICK))
        for slo in (Slo(ttft, tpot, attainment), narrow)
    )
    if not tight.feasible:
        return
    assert wide.chosen is not None
    assert tight.chosen is not None
    assert wide.feasible
    if rate is None:
        assert tight.chosen.per_device <= wide.chosen.per_device * (1 + 1e-9)
    else:
        assert tight.chosen.placement.devices >= wide.chosen.placement.devices


@settings(max_examples=8)
@given(
    slo=SLOS,
    lengths=LENGTHS,
    devices=st.integers(0, 4),
    rate=st.sampled_from([None, 0.5, 1e6]),
    affinity=st.sampled_from(Affinity),
)
def test_every_question_has_an_answer_with_what_binds(
    slo: Slo, lengths: LogNormal, devices: int, rate: float | None, affinity: Affinity
) -> None:
    """B37 (the same answer twice), B40."""
    asked = question(per_node=devices, slo=slo, lengths=lengths, rate=rate, affinity=affinity, window=QUICK)
    found = plan(asked)
    assert found == plan(asked)
    assert found.binding
    if found.feasible:
        check_feasible(found, asked)
    elif found.served is not None:
        latencies = (found.served.ttft, found.served.tpot)
        assert not math.isnan(found.served.attainment + sum(one.p90 for one in latencies if one is not None))


def check_feasible(found: Plan, asked: Question) -> None:
    assert found.chosen is not None
    assert found.served is not None
    assert found.chosen.placement.devices <= asked.inventory.devices
    assert found.served.attainment >= asked.slo.attainment - 0.01
    assert found.served.rate == (asked.rate or found.chosen.goodput)
