"""Matrices in INT8: as near as eight bits can be, and the same by either way to compute."""

import math
from pathlib import Path

import pytest
import torch
from distserve_testing.ranks import Instance

from distserve_worker.engine.models.quantized import Int8Linear, quantize
from distserve_worker.text.loading import load_text

TEXT = Path(__file__).parents[3] / "LICENSE"


def _random(outputs: int, inputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(outputs * inputs))


def _quantized(whole: torch.Tensor, inputs: range | None = None) -> Int8Linear:
    inputs = range(whole.shape[1]) if inputs is None else inputs
    packed = torch.empty((len(whole), len(inputs)), dtype=torch.int8)
    scales = torch.empty(len(whole), dtype=torch.bfloat16)
    quantize(whole.clone(), inputs, packed, scales)
    return Int8Linear(packed, scales, torch.ones(len(whole), dtype=torch.bfloat16))


def test_no_weight_is_further_away_than_half_a_step() -> None:
    whole = _random(40, 96)
    whole[7] = 0.0  # an output that is nothing has no step
    packed = _quantized(whole)
    steps = packed.scales.float().unsqueeze(1)
    restored = packed.weight * steps
    limit = whole.abs().amax(dim=1, keepdim=True) / 127 / 2
    # a scale is rounded to BF16, so the largest weight may be cut by that
    assert ((restored - whole).abs() <= limit + whole.abs() / 256 + 1e-7).all()


def test_a_part_of_the_inputs_has_the_scales_of_all() -> None:
    whole = _random(8, 64)
    one, left, right = _quantized(whole), _quantized(whole, range(40)), _quantized(whole, range(40, 64))
    assert torch.equal(torch.cat((left.weight, right.weight), dim=1), one.weight)
    assert torch.equal(left.scales, one.scales)


@pytest.mark.parametrize("inputs", [96, 40])  # the kernel takes the first only
@pytest.mark.parametrize("rows", [1, 16, 17, 64])
def test_few_and_many_rows_are_computed_alike(rows: int, inputs: int) -> None:
    whole, x = _random(24, inputs), _random(rows, inputs).bfloat16()
    packed = _quantized(whole)
    expected = x.float() @ (packed.weight * packed.scales.float().unsqueeze(1)).t() + 1.0
    torch.testing.assert_close(packed(x).float(), expected, atol=0.15, rtol=0.02)


def test_the_perplexity_of_smollm2_is_within_one_percent_of_fp32(smollm2_path: Path) -> None:
    tokens = load_text(smollm2_path).tokenizer.encode(TEXT.read_text(), add_special_tokens=False)[:400]
    exact, packed = (_perplexity(smollm2_path, dtype, tokens) for dtype in ("FP32", "INT8"))
    assert 1.0 < exact < 30.0
    assert packed == pytest.approx(exact, rel=0.01)


def _perplexity(path: Path, dtype: str, tokens: tuple[int, ...]) -> float:
    logits = Instance(path, dtype).logits(tokens)
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(tokens[1:]))
    return math.exp(float(loss))
