"""Logits of every family equal those of transformers, for all of its switches, however the model is cut."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from distserve_testing.families import FAMILIES, reloaded, write_family
from distserve_testing.ranks import Instance

from distserve_worker.engine.models import vocabulary
from distserve_worker.engine.parallel import WHOLE, Grid

TOKENS = torch.randint(0, 211, (45,), generator=torch.Generator().manual_seed(3)).tolist()
CUTS = (17, 40, 41, 42)  # a prompt in two pieces, then some tokens one by one
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}
SWITCHES: dict[str, dict[str, dict[str, Any]]] = {
    "llama": {
        "grouped-query": {},
        "multi-head": {"num_key_value_heads": 6},
        "multi-query": {"num_key_value_heads": 1},
        "tied": {"tie_word_embeddings": True},
        "wide-heads": {"head_dim": 32},
        "llama3-rope": {"rope_parameters": LLAMA3},
        "linear-rope": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}},
        "yarn-rope": {"rope_parameters": YARN},
        "attention-bias": {"attention_bias": True},
        "mlp-bias": {"mlp_bias": True},
        "another-activation": {"hidden_act": "gelu"},
    },
    "mistral": {
        "no-window": {},
        "window": {"sliding_window": 7},
        "wide-heads": {"head_dim": 32, "sliding_window": 7},
        "tied": {"tie_word_embeddings": True},
    },
    "qwen2": {
        "no-window": {},
        "tied": {"tie_word_embeddings": True},
        "window-of-the-last-layers": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
        "yarn-rope": {"rope_parameters": YARN},
    },
    "qwen3": {
        "no-bias": {},
        "bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 6},
        "window-of-one-layer": {
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    },
    "gpt2": {
        "tied": {},
        "untied": {"tie_word_embeddings": False},
        "another-ffn": {"n_inner": 64, "activation_function": "relu"},
        "unscaled": {"scale_attn_weights": False, "initializer_range": 0.1},
        "scaled-by-layer": {"scale_attn_by_inverse_layer_idx": True},
    },
    "opt": {
        "norm-first": {},
        "norm-last-with-another-width": {"do_layer_norm_before": False, "word_embed_proj_dim": 32},
        "untied": {"tie_word_embeddings": False},
        "no-bias": {"enable_bias": False},
        "norms-without-weights": {"layer_norm_elementwise_affine": False},
        "no-final-norm": {"_remove_final_layer_norm": True},
        "another-activation": {"activation_function": "gelu"},
    },
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}
UNTRAINED = {
    "llama3": {name: LLAMA3[name] for name in LLAMA3 if not name.startswith("original")},
    "yarn": {name: YARN[name] for name in YARN if not name.startswith("original")},
}
# what config.json may say in a way that transformers reads and does not write; null takes a field out
BY_HAND: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral-windows-of-some-layers": (
        "mistral",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 7},
    ),
    "rope-scaling-of-earlier-versions": (
        "llama",
        {"rope_parameters": None, "rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    "rope-scaling-hides-rope-parameters": (
        "llama",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rope_scaling": LINEAR},
    ),
    "rope-scaling-hides-the-theta-of-rope-parameters": (
        "llama",
        {"rope_parameters": {"rope_theta": 100.0}, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ),
    "llama3-trained-length-outside": (
        "llama",
        {"rope_parameters": UNTRAINED["llama3"], "original_max_position_embeddings": 32},
    ),
    "llama3-trained-length-outside-counts-first": (
        "llama",
        {"rope_parameters": LLAMA3, "original_max_position_embeddings": 32},
    ),
    "yarn-trained-length-outside": (
        "llama",
        {"rope_parameters": UNTRAINED["yarn"], "original_max_position_embeddings": 32},
    ),
    "yarn-trained-length-outside-counts-first": (
        "llama",
        {"rope_parameters": YARN, "original_max_position_embeddings": 64},
    ),
    "yarn-factor-out-of-lengths": ("llama", {"rope_parameters": {**YARN, "factor": None}}),
    "a-share-of-heads-outside-without-scaling": ("llama", {"partial_rotary_factor": 0.5}),
    "silu-by-another-name": ("llama", {"hidden_act": "swish"}),
    "no-rms-epsilon": ("qwen3", {"rms_norm_eps": None}),
    "no-layer-norm-epsilon": ("gpt2", {"layer_norm_epsilon": None}),
}
UNCHANGED = {
    "a-share-of-heads-outside-without-scaling",
    "silu-by-another-name",
    "no-rms-epsilon",
    "no-layer-norm-epsilon",
}
GRIDS = [Grid(2, 1), Grid(1, 2), Grid(2, 2), Grid(1, 3)]


def _reference(model: transformers.PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([TOKENS])).logits[0].float()
    return logits


@pytest.mark.parametrize(
    ("family", "switch"), [(family, switch) for family, switches in SWITCHES.items() for switch in switches]
)
def test_logits_in_fp32(tmp_path: Path, family: str, switch: str) -> None:
    expected = _reference(write_family(tmp_path, family, **SWITCHES[family][switch]))
    torch.testing.assert_close(Instance(tmp_path).logits(TOKENS, CUTS), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("case", BY_HAND)
def test_logits_of_a_configuration_written_by_hand(tmp_path: Path, case: str) -> None:
    family, changes = BY_HAND[case]
    before = _reference(write_family(tmp_path, family))
    written = json.loads((tmp_path / "config.json").read_text()) | changes
    written = {name: value for name, value in written.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(written))
    expected = _reference(reloaded(tmp_path, torch.float32))
    assert case in UNCHANGED or not torch.allclose(expected, before, atol=1e-2)
    torch.testing.assert_close(Instance(tmp_path).logits(TOKENS, CUTS), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("grid", GRIDS, ids=[f"tp{grid.tp}-pp{grid.pp}" for grid in GRIDS])
@pytest.mark.parametrize(
    ("family", "switch"),
    [
        ("llama", "multi-query"),
        ("llama", "tied"),
        ("llama", "mlp-bias"),
        ("mistral", "window"),
        ("qwen2", "window-of-the-last-layers"),
        ("qwen3", "bias"),
        ("gpt2", "tied"),
        ("gpt2", "scaled-by-layer"),
        ("opt", "norm-first"),
        ("opt", "norm-last-with-another-width"),
    ],
)
def test_a_model_that_is_cut_computes_the_same(tmp_path: Path, family: str, switch: str, grid: Grid) -> None:
    """B14. With two ranks the vocabulary is not divided evenly, and a single key/value head is on both."""
    write_family(tmp_path, family, **SWITCHES[family][switch])
    whole, cut = Instance(tmp_path).logits(TOKENS, CUTS), Instance(tmp_path, grid=grid).logits(TOKENS, CUTS)
    torch.testing.assert_close(cut, whole, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("dtype", ["FP32", "BF16"])
@pytest.mark.parametrize("grid", [WHOLE, Grid(2), Grid(1, 2)], ids=str)
def test_a_head_in_slices_scores_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: Grid, dtype: str
) -> None:
    write_family(tmp_path, "llama")
    whole = Instance(tmp_path, dtype, grid).logits(TOKENS, CUTS)
    monkeypatch.setattr(vocabulary, "_LARGE", 0)
    sliced = Instance(tmp_path, dtype, grid).logits(TOKENS, CUTS)
    torch.testing.assert_close(sliced, whole, atol=1e-5, rtol=1e-5)


def test_three_ranks_for_each_key_value_head(tmp_path: Path) -> None:
    """B14."""
    write_family(tmp_path, "qwen3", intermediate_size=96)
    whole, cut = Instance(tmp_path).logits(TOKENS, CUTS), Instance(tmp_path, grid=Grid(6, 1)).logits(TOKENS, CUTS)
    torch.testing.assert_close(cut, whole, atol=2e-4, rtol=2e-4)


def test_more_ranks_than_shares_of_the_vocabulary(tmp_path: Path) -> None:
    """Seven tokens in shares of two: the last of six ranks have none."""
    few: dict[str, Any] = {"vocab_size": 7, "bos_token_id": None, "eos_token_id": None}
    write_family(tmp_path, "llama", num_key_value_heads=6, intermediate_size=96, **few)
    tokens = [token % 7 for token in TOKENS]
    whole, cut = Instance(tmp_path).logits(tokens), Instance(tmp_path, grid=Grid(6, 1)).logits(tokens)
    torch.testing.assert_close(cut, whole, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("dtype", ["BF16", "FP16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_is_as_near_to_fp32_as_that_of_transformers(tmp_path: Path, family: str, dtype: str) -> None:
    exact = _reference(write_family(tmp_path, family))
    theirs = _reference(reloaded(tmp_path, {"BF16": torch.bfloat16, "FP16": torch.float16}[dtype]))
    ours = Instance(tmp_path, dtype).logits(TOKENS, CUTS)
    assert 0 < (ours - exact).square().mean() < 2.0 * (theirs - exact).square().mean()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_weights_stored_in_half_precision_are_computed_with_in_fp32(
    tmp_path: Path, family: str, stored: torch.dtype
) -> None:
    expected = _reference(write_family(tmp_path, family, dtype=stored))
    torch.testing.assert_close(Instance(tmp_path).logits(TOKENS, CUTS), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_int8_is_near_to_fp32_and_the_same_however_it_is_cut(tmp_path: Path, family: str) -> None:
    exact = _reference(write_family(tmp_path, family))
    whole = Instance(tmp_path, "INT8").logits(TOKENS, CUTS)
    half = Instance(tmp_path, "BF16").logits(TOKENS, CUTS)
    assert _distance(whole, exact) < 0.1
    cut = Instance(tmp_path, "INT8", Grid(2, 2)).logits(TOKENS, CUTS)
    assert _distance(cut, whole) < 3.0 * _distance(half, exact)  # what sums in another order make of BF16


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Of logits, in parts of how far they are from each other."""
    return float((one - other).square().mean().sqrt() / other.std())
