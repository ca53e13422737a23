"""Profiles as documents: what is written is read back, and what is wrong is named with its place, value and fix."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.latency.law import DecodePlane, EngineRules, HostCost, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import DecodePoint, MixedPoint, Points, PrefillPoint
from distserve_operator.placement.latency.problem import MalformedProfileError
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.profile_parsing import parse_profile, read_profile
from distserve_operator.placement.latency.profile_writing import write_config_map, write_profile

DOCUMENT: dict[str, Any] = {
    "apiVersion": "distserve.io/v1alpha1",
    "kind": "LatencyProfile",
    "engine": "distserve",
    "device": "CPU",
    "model": "SmolLM2-135M",
    "weightType": "BF16",
    "origin": "a test",
    "laws": [
        {
            "tensorParallelism": 1,
            "prefill": [{"fixedMilliseconds": 20, "perTokenMilliseconds": 0.1, "perSquaredTokenMilliseconds": 7.5e-06}],
            "decode": [
                {"fixedMilliseconds": 19.5, "perContextTokenMilliseconds": 6e-04, "perRequestMilliseconds": 0.25}
            ],
        }
    ],
}

TWO_IN_ONE = "kind: ConfigMap\ndata: {a: b, c: d}"
ILLEGIBLE = ["a: " + 3000 * "[", 5000 * '{"a":', "a: 2024-99-99"]

# of nine digits: more than anybody measures, fewer than a document has
amounts = st.integers(0, 10**9).map(lambda digits: digits / 1e9)
slopes = st.integers(-(10**9), 10**9).map(lambda digits: digits / 1e12)
names = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
prefill_planes = st.builds(PrefillPlane, amounts, slopes, slopes)
decode_planes = st.builds(DecodePlane, amounts, slopes, slopes)
working = PrefillPlane(0.02, 1e-4, 0.0), DecodePlane(0.02, 1e-6, 1e-4)
laws = st.builds(
    StepLaw,
    st.lists(prefill_planes, max_size=2).map(lambda planes: (working[0], *planes)),
    st.lists(decode_planes, max_size=2).map(lambda planes: (working[1], *planes)),
    st.builds(HostCost, amounts, amounts, amounts, amounts, amounts),
)
counts = st.integers(1, 10**6)
times = st.integers(1, 10**9).map(lambda digits: digits / 1e9)
points = st.builds(
    Points,
    st.lists(st.builds(PrefillPoint, counts, counts, times), max_size=3).map(tuple),
    st.lists(st.builds(DecodePoint, counts, counts, times), max_size=3).map(tuple),
    st.lists(st.builds(MixedPoint, st.just(0) | counts, counts, times, times), max_size=3).map(tuple),
)
shares = st.floats(0, 1, allow_nan=False)
rules = st.builds(EngineRules, st.none() | counts, st.none() | counts, counts, counts, shares, st.booleans())


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    by_degree = draw(st.dictionaries(st.integers(1, 64), laws, min_size=1, max_size=3))
    measured = {tp: draw(points) for tp in by_degree if draw(st.booleans())}
    return Profile(
        engine=draw(names),
        device=draw(names),
        model=draw(names),
        weight_type=draw(st.sampled_from(["FP32", "FP16", "BF16", "INT8"])),
        origin=draw(names),
        laws=by_degree,
        rules=draw(rules),
        hop=draw(amounts),
        overlap=draw(shares),
        poor_fit=draw(st.none() | names),
        points=measured,
    )


def with_change(path: list[str | int], value: object) -> str:
    """The document with one field changed."""
    document = json.loads(json.dumps(DOCUMENT))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return yaml.safe_dump(document)


@given(profiles())
def test_a_written_profile_is_read_back_as_it_was(profile: Profile) -> None:
    read = parse_profile(write_profile(profile))
    assert write_profile(read) == write_profile(profile)
    assert (read.engine, read.rules, read.points.keys()) == (profile.engine, profile.rules, profile.points.keys())
    for tp, law in profile.laws.items():
        assert read.laws[tp].host.per_step == pytest.approx(law.host.per_step, rel=1e-9)
        assert read.laws[tp].prefill[-1].per_token == pytest.approx(law.prefill[-1].per_token, rel=1e-9)


@given(profiles())
def test_a_config_map_holds_the_same_profile(profile: Profile) -> None:
    text = write_config_map(profile, "measured", "serving")
    assert yaml.safe_load(text)["metadata"] == {"name": "measured", "namespace": "serving"}
    assert parse_profile(text) == parse_profile(write_profile(profile))


def test_milliseconds_become_seconds() -> None:
    law = read_profile(yaml.safe_dump(DOCUMENT)).laws[1]
    assert law.prefill == (PrefillPlane(0.02, 0.1 / 1000, 7.5e-06 / 1000),)
    assert law.decode == (DecodePlane(0.0195, 6e-04 / 1000, 0.25 / 1000),)


def test_json_is_read_as_well() -> None:
    assert read_profile(json.dumps(DOCUMENT)) == read_profile(yaml.safe_dump(DOCUMENT))


def test_exponents_as_people_write_them_are_numbers() -> None:
    text = yaml.safe_dump(DOCUMENT).replace("7.5e-06", "75e-7")
    assert read_profile(text) == read_profile(yaml.safe_dump(DOCUMENT))


def test_what_is_left_out_has_its_usual_value() -> None:
    profile = read_profile(yaml.safe_dump(DOCUMENT))
    assert (profile.rules, profile.hop, profile.overlap) == (EngineRules(), 0.0, 0.0)
    assert profile.laws[1].host == HostCost()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["engine"], None, "engine: nothing stands here; write the field"),
        (["weightType"], "FP8", "weightType: FP8 is not known; write FP32 or FP16 or BF16 or INT8"),
        (["kind"], "Pod", "kind: Pod is not known; write LatencyProfile"),
        (["laws"], [], "laws: [] is no list with entries"),
        (["laws", 0, "tensorParallelism"], 0, "laws[0].tensorParallelism: 0 is no whole number from 1 to 1000000000"),
        (
            ["laws", 0, "prefill", 0, "perTokenMilliseconds"],
            float("nan"),
            "laws[0].prefill[0].perTokenMilliseconds: nan is no finite number; measure again",
        ),
        (
            ["laws", 0, "decode", 0, "fixedMilliseconds"],
            float("inf"),
            "laws[0].decode[0].fixedMilliseconds: inf is no finite number",
        ),
        (["laws", 0, "decode", 0, "fixedMilliseconds"], "fast", "fixedMilliseconds: fast is no number; write a number"),
        (
            ["laws", 0, "decode", 0, "fixedMilliseconds"],
            None,
            "laws[0].decode[0].fixedMilliseconds: nothing stands here",
        ),
        (["laws", 0, "host"], {"perStepMilliseconds": -1}, "laws[0].host.perStepMilliseconds: -1.0 is out of range"),
        (["laws", 0, "decode"], [3], "laws[0].decode[0]: 3 is no mapping"),
        (
            ["laws", 0, "points"],
            {"decode": [{"contextTokens": 1, "requests": 1, "milliseconds": 0}]},
            "milliseconds: 0",
        ),
        (["chunkOverlap"], 1.5, "chunkOverlap: 1.5 is out of range; write 0 to 1"),
        (["rules"], {"blockingPulls": "yes, please"}, "rules.blockingPulls: yes, please is neither true nor false"),
        (["hopMiliseconds"], 1, "hopMiliseconds: 1 is of a field that is not known; did you mean hopMilliseconds?"),
    ],
)
def test_what_is_wrong_is_named_with_place_value_and_fix(path: list[str | int], value: object, said: str) -> None:
    with pytest.raises(MalformedProfileError) as caught:
        read_profile(with_change(path, value), allow_poor_fit=True)
    assert said in str(caught.value)
    assert len(caught.value.problems) == 1


def test_all_that_is_wrong_is_named_at_once() -> None:
    text = with_change(["laws", 0], {"tensorParallelism": 1, "prefill": [{}], "decode": 7})
    with pytest.raises(MalformedProfileError) as caught:
        read_profile(text)
    assert [problem.path for problem in caught.value.problems] == [
        "laws[0].prefill[0].fixedMilliseconds",
        "laws[0].prefill[0].perTokenMilliseconds",
        "laws[0].prefill[0].perSquaredTokenMilliseconds",
        "laws[0].decode",
    ]


def test_steps_that_take_no_time_are_no_profile() -> None:
    plane = {"fixedMilliseconds": 0, "perTokenMilliseconds": -0.1, "perSquaredTokenMilliseconds": 0}
    with pytest.raises(MalformedProfileError, match="says that steps take no time"):
        read_profile(with_change(["laws", 0, "prefill"], [plane]), allow_poor_fit=True)


@pytest.mark.parametrize("fixed", [0, -1])
def test_a_step_of_little_work_takes_some_time(fixed: int) -> None:
    document = with_change(["laws", 0, "decode", 0, "fixedMilliseconds"], fixed)
    with pytest.raises(MalformedProfileError, match=r"laws\[0\]\.decode: 0 in every fixedMilliseconds, .* no time"):
        read_profile(document, allow_poor_fit=True)
    by_the_host = yaml.safe_load(document)
    by_the_host["laws"][0]["host"] = {"perStepMilliseconds": 4}
    assert read_profile(yaml.safe_dump(by_the_host), allow_poor_fit=True).laws[1].host.per_step == 0.004


def test_one_degree_has_one_law() -> None:
    with pytest.raises(MalformedProfileError, match=r"laws\[1\]\.tensorParallelism: 1 stands here twice"):
        read_profile(with_change(["laws"], DOCUMENT["laws"] * 2))


@pytest.mark.parametrize("text", ["", "- 1", "{", "a: [", *ILLEGIBLE, "kind: ConfigMap", TWO_IN_ONE])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(MalformedProfileError):
        read_profile(text)
