"""Step times out of a datasheet."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.catalogue.devices import device, device_names
from distserve_operator.placement.catalogue.models import model_names, model_shape
from distserve_operator.placement.latency.choosing import latency_model
from distserve_operator.placement.latency.law import StepLaw
from distserve_operator.placement.latency.prediction import decode_seconds, prefill_seconds
from distserve_operator.placement.latency.roofline import roofline
from distserve_operator.placement.model import BYTES

A100 = device("A100-80GB")
lengths = st.integers(1, 20000)
batches = st.integers(1, 1000)


def law_of(model: str, device_name: str = "A100-80GB", tp: int = 1) -> StepLaw:
    return roofline(model_shape(model), device(device_name), "distserve", "a test").laws[tp]


def prefill(law: StepLaw, tokens: int) -> float:
    return prefill_seconds(law.prefill, tokens, tokens * tokens)


@pytest.mark.parametrize("model", ["OPT-13B", "OPT-66B"])
def test_it_is_within_a_quarter_of_what_was_measured_on_a100(model: str) -> None:
    measured = latency_model(model_shape(model), A100)
    for tp, law in measured.laws.items():
        guess = law_of(model, tp=tp)
        for tokens in (64, 256, 512, 1024, 2048):
            assert prefill(guess, tokens) == pytest.approx(prefill(law, tokens), rel=0.25)
        for batch, context in ((1, 1000), (8, 1000), (32, 1000), (64, 800), (128, 500), (200, 200)):
            expected = decode_seconds(law.decode, batch * context, batch)
            assert decode_seconds(guess.decode, batch * context, batch) == pytest.approx(expected, rel=0.25)


@given(st.sampled_from(model_names()), st.sampled_from(device_names()), st.sampled_from(list(BYTES)), lengths, batches)
def test_steps_take_time_and_grow_with_work(name: str, on: str, kind: str, tokens: int, batch: int) -> None:
    latency = roofline(model_shape(name, kind), device(on), "distserve", "a test")  # type: ignore[arg-type]
    for law in latency.laws.values():
        assert 0 < prefill(law, tokens) < prefill(law, 2 * tokens)
        step = decode_seconds(law.decode, tokens, batch)
        assert 0 < step < decode_seconds(law.decode, tokens + 1, batch)
        assert step < decode_seconds(law.decode, tokens, batch + 1)


@given(st.sampled_from(model_names()), st.floats(1, 20000), batches)
def test_laws_are_continuous(name: str, tokens: float, batch: int) -> None:
    for law in roofline(model_shape(name), A100, "distserve", "a test").laws.values():
        here, there = (prefill_seconds(law.prefill, at, at * at) for at in (tokens, tokens * (1 + 1e-9)))
        assert there == pytest.approx(here, rel=1e-6)
        here, there = (decode_seconds(law.decode, at, batch) for at in (tokens, tokens * (1 + 1e-9)))
        assert there == pytest.approx(here, rel=1e-6)


def test_decode_reads_the_weights_and_no_faster_than_the_memory_allows() -> None:
    opt = model_shape("OPT-13B")
    weights = 2 * opt.layers * opt.layer_parameters
    assert decode_seconds(law_of("OPT-13B").decode, 0, 1) > weights / A100.bandwidth


def test_prefill_of_long_prompts_is_no_faster_than_the_arithmetic_allows() -> None:
    opt = model_shape("OPT-13B")
    ideal = 4096 * 2 * opt.layers * opt.layer_parameters / A100.flops["FP16"]
    assert ideal < prefill(law_of("OPT-13B"), 4096) < 2 * ideal


def test_large_decode_batches_are_bound_by_arithmetic() -> None:
    memory, arithmetic = law_of("OPT-13B").decode
    assert decode_seconds([memory], 0, 8) > decode_seconds([arithmetic], 0, 8)
    assert decode_seconds([memory], 0, 800) < decode_seconds([arithmetic], 0, 800)


def test_grouped_queries_make_contexts_cheaper() -> None:
    llama = model_shape("Llama-3.1-8B")
    every_head = replace(llama, kv_heads=llama.heads)
    few = roofline(llama, A100, "distserve", "a test").laws[1].decode[0].per_context
    many = roofline(every_head, A100, "distserve", "a test").laws[1].decode[0].per_context
    assert many == pytest.approx(4 * few)


def test_int8_halves_the_reading_and_leaves_the_arithmetic() -> None:
    halves = roofline(model_shape("OPT-66B"), A100, "distserve", "a test").laws[2]
    bytes_ = roofline(model_shape("OPT-66B", "INT8"), A100, "distserve", "a test").laws[2]
    assert 0.5 < bytes_.decode[0].fixed / halves.decode[0].fixed < 0.6
    assert bytes_.prefill[1].per_token == halves.prefill[1].per_token
    assert bytes_.decode[0].per_context == halves.decode[0].per_context


def test_more_devices_are_faster_by_less_than_their_number() -> None:
    for tp in (1, 2, 4):
        few, many = law_of("OPT-13B", tp=tp), law_of("OPT-13B", tp=2 * tp)
        assert 1 < prefill(few, 1024) / prefill(many, 1024) < 2


def test_a_slow_link_makes_tensor_parallelism_pay_less() -> None:
    slow = replace(A100, node_link=A100.node_link / 10)
    law = roofline(model_shape("OPT-13B"), slow, "distserve", "a test").laws[4]
    assert prefill(law, 1024) > 1.2 * prefill(law_of("OPT-13B", tp=4), 1024)


def test_only_degrees_that_the_heads_allow_have_a_law() -> None:
    assert sorted(roofline(model_shape("OPT-13B"), A100, "distserve", "a test").laws) == [1, 2, 4, 5, 8, 10, 20, 40]
    assert sorted(roofline(model_shape("SmolLM2-135M"), device("CPU"), "distserve", "a test").laws) == [1, 3]


def test_a_core_takes_tens_of_milliseconds_for_a_token_of_a_small_model() -> None:
    assert 0.01 < decode_seconds(law_of("SmolLM2-135M", "CPU").decode, 200, 1) < 0.1
