"""Which latencies are believed: measured, shipped, or the roofline; the plan says which and why."""

from dataclasses import replace

import pytest

from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_shape
from distserve_operator.placement.latency.choosing import latency_model, shipped_profile
from distserve_operator.placement.latency.law import DecodePlane, EngineRules, PrefillPlane, StepLaw
from distserve_operator.placement.latency.problem import PoorFitError, ProfileMismatchError
from distserve_operator.placement.latency.profile import Profile

A100 = device("A100-80GB")
OPT = model_shape("OPT-13B")
LAW = StepLaw((PrefillPlane(0.02, 1e-4, 0.0),), (DecodePlane(0.02, 1e-6, 1e-4),))
MEASURED = Profile("distserve", "A100-80GB", "opt-13b", "FP16", "our own A100", {1: LAW}, hop=0.001, overlap=0.5)


def test_a_measured_profile_goes_before_a_shipped_one() -> None:
    latency = latency_model(OPT, A100, profile=MEASURED)
    assert latency.laws == {1: LAW}
    assert (latency.hop, latency.overlap) == (0.001, 0.5)
    assert latency.source == "measured profile of opt-13b on A100-80GB, engine distserve: our own A100"


def test_a_shipped_profile_goes_before_the_roofline() -> None:
    latency = latency_model(OPT, A100)
    assert sorted(latency.laws) == [1, 2, 4]
    assert latency.source.startswith("shipped profile of OPT-13B on A100-80GB, engine distserve: DistServe (OSDI'24)")


def test_without_a_profile_the_roofline_says_why() -> None:
    latency = latency_model(model_shape("Llama-3.1-8B"), device("H100-80GB"))
    assert latency.source == "roofline of H100-80GB: there is no profile of Llama-3.1-8B in BF16 for engine distserve"


def test_a_poor_shipped_profile_gives_way_to_the_roofline_unless_it_is_allowed() -> None:
    opt = model_shape("OPT-175B")
    assert latency_model(opt, A100).source.startswith(
        "roofline of A100-80GB: the shipped profile of OPT-175B fits badly (early measurements with negative slopes"
    )
    allowed = latency_model(opt, A100, allow_poor_fit=True)
    assert sorted(allowed.laws) == [1, 2, 4, 8]
    assert allowed.source.endswith("it fits badly, what is negative counts as 0")
    assert min(plane.per_request for law in allowed.laws.values() for plane in law.decode) == 0


def test_a_poor_measured_profile_is_refused_unless_it_is_allowed() -> None:
    poor = replace(MEASURED, laws={1: replace(LAW, decode=(DecodePlane(0.02, -1e-6, 1e-4),))})
    with pytest.raises(PoorFitError, match=r"perContextTokenMilliseconds: -0\.001 is negative"):
        latency_model(OPT, A100, profile=poor)
    assert latency_model(OPT, A100, profile=poor, allow_poor_fit=True).laws[1].decode[0].per_context == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "OPT-66B"}, "model: OPT-66B is not OPT-13B, which the plan is for; give its profile, or none"),
        ({"device": "H100-80GB"}, "device: H100-80GB is not A100-80GB"),
        ({"engine": "vllm"}, "engine: vllm is not distserve"),
        ({"weight_type": "INT8"}, "weightType: INT8 is not FP16"),
    ],
)
def test_a_profile_of_something_else_is_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(ProfileMismatchError) as caught:
        latency_model(OPT, A100, profile=replace(MEASURED, **change))  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_a_model_in_a_folder_has_the_profiles_of_the_known_model_with_its_numbers() -> None:
    folder = replace(OPT, name="my-copy", positions=1024)
    assert latency_model(folder, A100, profile=MEASURED).laws == {1: LAW}
    assert latency_model(folder, A100).source.startswith("shipped profile of OPT-13B")
    assert latency_model(folder, A100, profile=replace(MEASURED, model="my-copy")).laws == {1: LAW}
    with pytest.raises(ProfileMismatchError, match="another name fits once its field model says my-copy"):
        latency_model(replace(folder, layers=39), A100, profile=MEASURED)


def test_both_16_bit_types_take_the_same_time() -> None:
    assert latency_model(model_shape("OPT-13B", "BF16"), A100).laws == latency_model(OPT, A100).laws
    assert latency_model(model_shape("OPT-13B", "INT8"), A100).source.startswith("roofline")


def test_an_engine_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="engine 'tgi' is not known; known are distserve, vllm"):
        latency_model(OPT, A100, "tgi")


def test_rules_are_those_of_the_engine_that_was_measured() -> None:
    assert latency_model(OPT, A100).rules == EngineRules(8192, None, 128, 1024, 0.0, blocking_pulls=True)
    assert latency_model(OPT, A100, "vllm").rules == EngineRules(None, 2048, 256, 256)


def test_the_roofline_of_our_engine_batches_up_to_what_saturates_the_device() -> None:
    assert latency_model(model_shape("Llama-3-8B"), A100).rules == EngineRules()
    assert latency_model(model_shape("Llama-3-8B"), A100, "vllm").rules.colocated_tokens == 2048


def test_what_the_published_prefill_figures_hold_besides_kernels_is_taken_out() -> None:
    """The published coefficients have a tenth of host and HTTP overhead folded in."""
    plane = latency_model(OPT, A100).laws[1].prefill[0]
    assert 1.1 * plane.fixed == pytest.approx(18.1025e-3, rel=1e-6)
    assert 1.1 * plane.per_token == pytest.approx(0.101912e-3, rel=1e-6)
    assert 1.1 * plane.per_square == pytest.approx(7.12226e-9, rel=1e-6)
    law = latency_model(OPT, A100, "vllm").laws[1]
    assert 1.2 * law.prefill[0].fixed == pytest.approx(22.0522e-3, rel=1e-6)
    assert law.host.per_batch > 0


@pytest.mark.parametrize(("engine", "model"), [(e, m) for e in ("distserve", "vllm") for m in ("OPT-13B", "OPT-66B")])
def test_shipped_profiles_are_of_what_their_file_names_say(engine: str, model: str) -> None:
    profile = shipped_profile(model_shape(model), A100, engine)
    assert profile is not None
    assert (profile.engine, profile.device, profile.model) == (engine, "A100-80GB", model)
