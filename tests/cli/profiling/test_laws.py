"""From steps to a profile: with steps that follow a law, the profile is that law."""

from dataclasses import replace

import pytest

from distserve_cli.profiling.laws import Measured, host_cost, profile_of
from distserve_cli.profiling.rendering import profile_json
from distserve_cli.profiling.subject import Subject
from distserve_operator.placement.latency.law import DecodePlane, HostCost, PrefillPlane
from distserve_worker.measuring.messages import MixedStep, Step
from distserve_worker.measuring.messages import Subject as Bench

BENCH = Bench("CPU", "A CPU", 2, 0.7, 8192, 40_000, 64)
SUBJECT = Subject("SmolLM2-135M", "SmolLM2-135M", "FP32")
PREFILL = PrefillPlane(0.05, 0.002, 1e-6)
DECODE = DecodePlane(0.06, 1e-5, 0.003)
HOST = HostCost(per_batch=0.004, per_step=0.001, per_step_request=0.005)


def prefill(prompts: int, length: int, more_host: float = 0.0) -> Step:
    tokens, squares = prompts * length, prompts * length**2
    host = HOST.per_batch + more_host
    seconds = PREFILL.fixed + PREFILL.per_token * tokens + PREFILL.per_square * squares + host
    return Step("prefill", prompts, tokens, squares, seconds, host, 0.01, 5)


def decode(requests: int, mean: int) -> Step:
    host = HOST.per_step + HOST.per_step_request * requests
    tokens = requests * mean
    seconds = DECODE.fixed + DECODE.per_context * tokens + DECODE.per_request * requests + host
    return Step("decode", requests, tokens, requests * mean**2, seconds, host, 0.01, 5)


def mixed(before: int, chunk: int, overlap: float) -> MixedStep:
    squares = (before + chunk) ** 2 - before**2
    own = PREFILL.per_token * chunk + PREFILL.per_square * squares + DECODE.per_context * before
    return MixedStep(4, 68, before, chunk, 0.1 + (1 - overlap) * own + HOST.per_step_request, 0.1, 0.01, 5)


MEASURED = Measured(
    BENCH,
    tuple(prefill(prompts, length) for prompts in (1, 4) for length in (4, 16, 64, 256)),
    tuple(decode(requests, mean) for requests in (1, 4, 16, 64) for mean in (32, 256)),
    tuple(mixed(before, chunk, 0.25) for before in (0, 128) for chunk in (32, 128)),
)


def test_the_laws_are_found_and_the_host_is_apart() -> None:
    profile = profile_of(SUBJECT, MEASURED, "2030-01-02")
    law = profile.laws[1]
    (plane,) = law.prefill
    assert (plane.fixed, plane.per_token, plane.per_square) == pytest.approx((0.05, 0.002, 1e-6))
    (other,) = law.decode
    assert (other.fixed, other.per_context, other.per_request) == pytest.approx((0.06, 1e-5, 0.003))
    host = law.host
    assert (host.per_batch, host.per_step, host.per_step_request) == pytest.approx((0.004, 0.001, 0.005))
    assert (host.per_request, host.per_prompt_token, host.client) == (0, 0, 0)


def test_the_overlap_of_chunks_is_found() -> None:
    profile = profile_of(SUBJECT, MEASURED, "2030-01-02")
    assert profile.overlap == pytest.approx(0.25)
    shown = profile_json(profile, MEASURED)
    assert shown["chunkOverlap"] == 0.25
    assert [(step["before"], step["tokens"]) for step in shown["mixed"]["steps"]] == [
        (0, 32),
        (0, 128),
        (128, 32),
        (128, 128),
    ]
    assert shown["mixed"]["worstError"] == 0


def test_an_overlap_that_was_not_measured_is_nothing() -> None:
    measured = replace(MEASURED, mixed=())
    profile = profile_of(SUBJECT, measured, "2030-01-02")
    shown = profile_json(profile, measured)
    assert (profile.overlap, shown["chunkOverlap"], shown["mixed"]["steps"]) == (0, None, [])


def test_the_profile_says_who_measured_what() -> None:
    profile = profile_of(SUBJECT, MEASURED, "2030-01-02")
    assert (profile.engine, profile.device, profile.model) == ("distserve", "CPU", "SmolLM2-135M")
    assert profile.origin == "distserve profile on A CPU, 2 threads, temperature 0.7, 2030-01-02"
    assert profile.rules.prefill_tokens is None
    assert profile.rules.decode_requests == 64
    shown = profile_json(profile, MEASURED)
    assert shown["prefill"]["worstError"] == shown["decode"]["worstError"] == 0
    assert shown["problems"] == []


def test_what_grows_with_a_prefill_batch_is_no_cost_of_every_batch() -> None:
    steps = [prefill(1, 4), prefill(1, 64), prefill(1, 4096, more_host=0.1)]
    assert host_cost(steps, MEASURED.decode).per_batch == pytest.approx(0.004)


def test_steps_that_fit_no_law_are_refused_with_the_phase() -> None:
    few = Measured(BENCH, MEASURED.prefill[:3], MEASURED.decode)
    with pytest.raises(ValueError, match="prefill: 3 points are too few for a fit"):
        profile_of(SUBJECT, few, "2030-01-02")
