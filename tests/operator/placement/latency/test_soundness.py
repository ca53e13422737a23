"""Laws that no engine can have are refused, each with its place, value and fix."""

from dataclasses import replace

import pytest

from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.latency.choosing import shipped_profile
from distserve_operator.placement.latency.law import DecodePlane, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import DecodePoint, MixedPoint, Points, PrefillPoint
from distserve_operator.placement.latency.problem import PoorFitError
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.profile_parsing import read_profile
from distserve_operator.placement.latency.profile_writing import write_profile
from distserve_operator.placement.latency.soundness import poor_fits, without_negatives

LAW = StepLaw((PrefillPlane(0.02, 1e-4, 0.0),), (DecodePlane(0.02, 1e-6, 1e-4),))
SOUND = Profile("distserve", "CPU", "SmolLM2-135M", "BF16", "a test", {1: LAW})


def said(profile: Profile) -> list[str]:
    return [str(problem) for problem in poor_fits(profile)]


def test_a_sound_profile_has_no_problems() -> None:
    assert poor_fits(SOUND) == []


def test_a_negative_slope_is_a_poor_fit() -> None:
    law = replace(LAW, decode=(*LAW.decode, DecodePlane(0.03, 1e-6, -0.00224607)))
    (message,) = said(replace(SOUND, laws={1: law}))
    assert message.startswith(
        "laws[0].decode[1].perRequestMilliseconds: -2.24607 is negative: steps would shrink with work"
    )
    assert message.endswith("; measure again, or allow a poor fit")


def test_a_poor_fit_is_read_only_when_it_is_allowed() -> None:
    law = replace(LAW, prefill=(PrefillPlane(0.02, 1e-4, -1e-9),))
    text = write_profile(replace(SOUND, laws={1: law}))
    with pytest.raises(PoorFitError, match=r"laws\[0\]\.prefill\[0\]\.perSquaredTokenMilliseconds: -1e-06 is negative"):
        read_profile(text)
    assert read_profile(text, allow_poor_fit=True).laws[1].prefill[0].per_square == pytest.approx(-1e-9)


def test_what_its_author_distrusts_is_a_poor_fit() -> None:
    assert said(replace(SOUND, poor_fit="a busy machine"))[0].startswith("poorFit: a busy machine")


def test_a_measured_step_that_is_shorter_than_one_with_less_work_is_named() -> None:
    points = Points(
        (PrefillPoint(100, 10000, 0.03), PrefillPoint(200, 40000, 0.04), PrefillPoint(300, 90000, 0.02)),
        (DecodePoint(100, 1, 0.0201), DecodePoint(800, 8, 0.0216)),
    )
    messages = said(replace(SOUND, points={1: points}))
    assert messages[0].startswith(
        "laws[0].points.prefill[2].milliseconds: 20 is shorter than the 40 of a step with less work"
    )
    assert len([message for message in messages if "shorter" in message]) == 1


def test_noise_is_no_shrinking() -> None:
    points = Points(prefill=(PrefillPoint(100, 10000, 0.03), PrefillPoint(110, 12100, 0.0299)))
    assert poor_fits(replace(SOUND, points={1: points})) == []


def test_a_law_far_from_its_points_is_a_poor_fit() -> None:
    points = Points(decode=(DecodePoint(100, 1, 0.03), DecodePoint(800, 8, 0.04)))
    assert "laws[0].decode: 39% is the mean error against its points" in said(replace(SOUND, points={1: points}))[0]


def test_more_devices_cannot_be_faster_than_their_number_allows() -> None:
    almost_free = replace(LAW, prefill=(PrefillPlane(0.02, 1e-6, 0.0),))
    messages = said(replace(SOUND, laws={1: LAW, 8: almost_free}))
    assert len(messages) == 1
    assert messages[0].startswith("laws[1].prefill: 22 ms for a usual prefill step is less than 8 devices can take")


@pytest.mark.parametrize("engine", ["distserve", "vllm"])
@pytest.mark.parametrize("model", ["OPT-13B", "OPT-66B"])
def test_shipped_profiles_are_sound(engine: str, model: str) -> None:
    profile = shipped_profile(model_shape(model), device("A100-80GB"), engine)
    assert profile is not None
    assert poor_fits(profile) == []


def test_the_early_profile_of_opt_175b_is_known_to_be_poor() -> None:
    profile = shipped_profile(model_shape("OPT-175B"), device("A100-80GB"), "distserve")
    assert profile is not None
    paths = [problem.path for problem in poor_fits(profile)]
    assert paths[0] == "poorFit"
    assert "laws[1].decode[0].perRequestMilliseconds" in paths
    assert "laws[3].prefill" in paths  # almost free with 8 devices


def test_negatives_become_zero_for_those_who_allow_them() -> None:
    law = StepLaw((PrefillPlane(0.02, -1e-4, 1e-9),), (DecodePlane(0.02, 1e-6, -1e-4),))
    assert without_negatives(law) == StepLaw((PrefillPlane(0.02, 0.0, 1e-9),), (DecodePlane(0.02, 1e-6, 0.0),))


def test_chunks_that_cost_other_than_their_law_says_are_a_poor_fit() -> None:
    points = Points(mixed=(MixedPoint(0, 512, 0.02, 0.02 + 3 * 512e-4),))
    (message,) = said(replace(SOUND, points={1: points}))
    assert message.startswith("laws[0].points.mixed: 59% is the mean error against its points, above 20%")
