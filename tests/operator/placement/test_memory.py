"""What fits on a device beside the weights: the reference's rows, and the same principle for other models."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_operator.placement.catalogue.devices import device
from distserve_operator.placement.catalogue.models import model_names, model_shape
from distserve_operator.placement.memory import (
    block_bytes_per_device,
    capacity_blocks,
    kv_heads_per_device,
    shape_problem,
    split_problem,
    weight_bytes_per_device,
)
from distserve_operator.placement.shape import Shape
from distserve_operator.placement.simulation.block_size import BLOCK_TOKENS

A100 = device("A100-80GB")


@pytest.mark.parametrize(
    ("model", "shape", "tokens"),
    [
        ("OPT-13B", Shape(1, 1), 66144),
        ("OPT-66B", Shape(2, 1), 11600),
        ("OPT-66B", Shape(4, 1), 78496),
        ("OPT-175B", Shape(8, 1), 59520),
        ("OPT-175B", Shape(3, 3), 76192),
    ],
)
def test_the_rows_of_the_reference_come_out_exactly(model: str, shape: Shape, tokens: int) -> None:
    assert BLOCK_TOKENS * capacity_blocks(model_shape(model), A100, shape) == tokens


def test_the_blocks_of_the_real_runs_come_out_exactly() -> None:
    opt = model_shape("OPT-13B")
    assert capacity_blocks(opt, A100, Shape(1, 1)) == 4134
    assert capacity_blocks(opt, A100, Shape(2, 1)) == 10188


def test_a_512_token_kv_of_opt_66b_is_what_the_paper_says() -> None:
    """1.13 GB in the paper, which counts in GiB."""
    assert 512 * model_shape("OPT-66B").kv_bytes_per_token / 2**30 == pytest.approx(1.13, abs=0.005)


def test_grouped_queries_shrink_the_kv() -> None:
    llama = model_shape("Llama-3.1-8B")
    every_head = replace(llama, kv_heads=llama.heads)
    ratio = block_bytes_per_device(every_head, Shape(1, 1)) / block_bytes_per_device(llama, Shape(1, 1))
    assert ratio == 4


def test_kv_heads_are_copied_when_there_are_fewer_than_devices() -> None:
    llama = model_shape("Llama-3.1-8B")
    assert [kv_heads_per_device(llama, tp) for tp in (1, 4, 8, 16)] == [8, 2, 1, 1]
    assert block_bytes_per_device(llama, Shape(16, 1)) == block_bytes_per_device(llama, Shape(8, 1))


def test_weights_of_a_gated_model_are_its_parameters() -> None:
    llama = model_shape("Llama-2-7B")
    assert weight_bytes_per_device(llama, Shape(1, 1)) == pytest.approx(2 * llama.parameters, rel=0.001)


def test_int8_halves_the_weights_and_leaves_the_kv() -> None:
    halves, bytes_ = model_shape("OPT-66B"), model_shape("OPT-66B", "INT8")
    ratio = weight_bytes_per_device(bytes_, Shape(1, 1)) / weight_bytes_per_device(halves, Shape(1, 1))
    assert ratio == pytest.approx(0.5, abs=0.01)
    assert block_bytes_per_device(bytes_, Shape(1, 1)) == block_bytes_per_device(halves, Shape(1, 1))


def test_fp32_doubles_weights_and_kv() -> None:
    halves, wide = model_shape("SmolLM2-135M", "BF16"), model_shape("SmolLM2-135M", "FP32")
    assert weight_bytes_per_device(wide, Shape(1, 1)) == 2 * weight_bytes_per_device(halves, Shape(1, 1))
    assert block_bytes_per_device(wide, Shape(1, 1)) == 2 * block_bytes_per_device(halves, Shape(1, 1))


def test_the_largest_stage_counts_when_layers_do_not_divide() -> None:
    opt = model_shape("OPT-13B")
    of_fourteen = replace(opt, layers=14)
    assert block_bytes_per_device(opt, Shape(1, 3)) == block_bytes_per_device(of_fourteen, Shape(1, 1))
    assert weight_bytes_per_device(opt, Shape(1, 3)) == weight_bytes_per_device(of_fourteen, Shape(1, 1))


@given(st.sampled_from(model_names()), st.sampled_from([1, 2, 4, 8]), st.integers(1, 12))
def test_more_devices_never_hold_fewer_tokens(name: str, tp: int, pp: int) -> None:
    model = model_shape(name)
    small, big = Shape(tp, pp), Shape(2 * tp, pp)
    if split_problem(model, big.tp) is None and split_problem(model, tp) is None:
        assert capacity_blocks(model, A100, big) >= capacity_blocks(model, A100, small)
    assert capacity_blocks(model, A100, Shape(tp, pp + 1)) >= capacity_blocks(model, A100, small)


def test_a_model_that_does_not_fit_says_so_with_the_figures() -> None:
    opt = model_shape("OPT-66B")
    assert capacity_blocks(opt, A100, Shape(1, 1)) == 0
    problem = shape_problem(opt, A100, Shape(1, 1))
    assert problem is not None
    assert problem.startswith("TP1: OPT-66B puts 131.4 GB of weights on each device")
    assert "79.9 of the 85.0 GB of A100-80GB" in problem


def test_heads_and_layers_bound_the_shape() -> None:
    opt, qwen = model_shape("OPT-13B"), model_shape("Qwen2.5-0.5B")
    assert shape_problem(opt, A100, Shape(4, 2)) is None
    assert shape_problem(opt, A100, Shape(3, 1)) == "TP3: the 40 heads of OPT-13B cannot be shared out to 3 devices"
    assert shape_problem(opt, A100, Shape(1, 41)) == "TP1PP41: OPT-13B has no more than 40 layers"
    assert "2 KV heads of Qwen2.5-0.5B cannot" in (shape_problem(qwen, A100, Shape(7, 1)) or "")
