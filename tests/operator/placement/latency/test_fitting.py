"""Laws out of measured steps."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.latency.fit_error import decode_errors, mixed_errors, prefill_errors
from distserve_operator.placement.latency.fitting import fit_law, fit_overlap
from distserve_operator.placement.latency.law import DecodePlane, HostCost, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import DecodePoint, MixedPoint, Points, PrefillPoint
from distserve_operator.placement.latency.prediction import chunk_seconds, decode_seconds, prefill_seconds

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (64, 512, 2048)
PREFILL = (PrefillPlane(0.0165, 9.26e-05, 6.5e-09),)
DECODE = (DecodePlane(0.0199, 6.27e-07, 3.85e-05), DecodePlane(0.0072, 5.8e-07, 15.8e-05))
LAW = StepLaw(PREFILL, DECODE)
NO_HOST = HostCost()


def measured(law: StepLaw, noise: float = 0.0) -> Points:
    """What a machine with this law shows: prompts alone and in fours, and decode batches."""
    draw = random.Random(7)
    prefill = [(count * tokens, count * tokens**2) for tokens in LENGTHS for count in (1, 4)]
    decode = [(batch * context, batch) for batch in BATCHES for context in CONTEXTS]
    return Points(
        tuple(
            PrefillPoint(tokens, squares, prefill_seconds(law.prefill, tokens, squares) * draw.gauss(1, noise))
            for tokens, squares in prefill
        ),
        tuple(
            DecodePoint(context, batch, decode_seconds(law.decode, context, batch) * draw.gauss(1, noise))
            for context, batch in decode
        ),
    )


slopes = st.floats(1e-8, 1e-3)
laws = st.builds(
    StepLaw,
    st.tuples(st.builds(PrefillPlane, st.floats(1e-4, 1), st.floats(1e-6, 1e-2), st.floats(0, 1e-6))),
    st.tuples(st.builds(DecodePlane, st.floats(1e-4, 1), st.floats(1e-8, 1e-4), st.floats(1e-6, 1e-2))),
)


@given(laws)
def test_a_law_of_one_plane_is_found_again(law: StepLaw) -> None:
    points = measured(law)
    fitted = fit_law(points, NO_HOST)
    assert (len(fitted.prefill), len(fitted.decode)) == (1, 1)
    assert max(map(abs, prefill_errors(fitted, points.prefill))) < 1e-6
    assert max(map(abs, decode_errors(fitted, points.decode))) < 1e-6


def test_two_regimes_become_two_planes() -> None:
    points = measured(LAW)
    fitted = fit_law(points, NO_HOST)
    assert (len(fitted.prefill), len(fitted.decode)) == (1, 2)
    assert max(map(abs, decode_errors(fitted, points.decode))) < 0.01


def test_noise_does_not_become_a_second_plane() -> None:
    one_regime = StepLaw(PREFILL, DECODE[:1])
    fitted = fit_law(measured(one_regime, noise=0.015), NO_HOST)
    assert (len(fitted.prefill), len(fitted.decode)) == (1, 1)
    assert fitted.decode[0].fixed == pytest.approx(DECODE[0].fixed, rel=0.03)


@given(st.lists(st.floats(1e-4, 10), min_size=len(LENGTHS) * 2, max_size=len(LENGTHS) * 2), st.integers(0, 99))
def test_no_coefficient_is_ever_negative(seconds: list[float], seed: int) -> None:
    """Whatever was measured, steps do not shrink with work."""
    usual = measured(LAW)
    wild = [PrefillPoint(one.tokens, one.squares, time) for one, time in zip(usual.prefill, seconds, strict=True)]
    random.Random(seed).shuffle(wild)
    for plane in fit_law(Points(tuple(wild), usual.decode), NO_HOST).prefill:
        assert min(plane.fixed, plane.per_token, plane.per_square) >= 0
        assert max(plane.fixed, plane.per_token, plane.per_square) > 0


def test_short_steps_count_as_much_as_long_ones() -> None:
    """Relative least squares: a point that is off by a tenth is off by a tenth at any size."""
    points = measured(StepLaw(PREFILL, DECODE[:1]))
    doubled = Points(tuple(PrefillPoint(p.tokens, p.squares, 2 * p.seconds) for p in points.prefill), points.decode)
    once, twice = fit_law(points, NO_HOST).prefill[0], fit_law(doubled, NO_HOST).prefill[0]
    assert twice.per_token == pytest.approx(2 * once.per_token)
    assert twice.fixed == pytest.approx(2 * once.fixed)


def test_the_host_is_taken_as_given() -> None:
    host = HostCost(per_step=0.003)
    assert fit_law(measured(LAW), host).host == host


def test_too_few_points_are_refused_with_the_phase() -> None:
    points = measured(LAW)
    with pytest.raises(ValueError, match="decode: 3 points are too few for a fit; measure at least 4"):
        fit_law(Points(points.prefill, points.decode[:3]), NO_HOST)


def test_a_step_without_time_is_refused() -> None:
    points = measured(LAW)
    with pytest.raises(ValueError, match="prefill: a step cannot take no time"):
        fit_law(Points((*points.prefill, PrefillPoint(1, 1, 0.0)), points.decode), NO_HOST)


def test_errors_are_those_of_the_law_against_the_point() -> None:
    points = [DecodePoint(0, 1, decode_seconds(DECODE, 0, 1) / 1.1)]
    assert decode_errors(LAW, points) == [pytest.approx(0.1)]


CHUNKS = [(before, chunk, alone) for before in (0, 128) for chunk in (32, 512) for alone in (0.02, 0.05)]


def mixed(overlap: float, law: StepLaw = LAW) -> list[MixedPoint]:
    """What a machine shows whose chunks overlap so much, or cost more than their own time if it is below 0."""
    return [
        MixedPoint(before, chunk, alone, alone + (1 - overlap) * chunk_seconds(law, before, chunk))
        for before, chunk, alone in CHUNKS
    ]


@given(st.floats(0, 1), laws)
def test_an_overlap_is_found_again(overlap: float, law: StepLaw) -> None:
    points = mixed(overlap, law)
    found = fit_overlap(law, points)
    assert found == pytest.approx(overlap, abs=1e-6)
    assert max(map(abs, mixed_errors(law, found, points))) < 1e-6


@pytest.mark.parametrize(("true", "found"), [(-0.5, 0), (1.5, 1)])
def test_an_overlap_is_a_share(true: float, found: float) -> None:
    """The error says that the law is off: here chunks cost half as much again, or less than nothing."""
    points = mixed(true)
    assert fit_overlap(LAW, points) == found
    assert min(map(abs, mixed_errors(LAW, found, points))) > 0.01


def test_without_points_chunks_cost_their_own_time() -> None:
    assert fit_overlap(LAW, []) == 0
