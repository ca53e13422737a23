"""SmolLM2 through both engines: greedy text in FP32 equals transformers' token for token; its logits in BF16."""

from pathlib import Path

import pytest
import torch
import transformers
from distserve_testing.engines import generate
from distserve_testing.ranks import Instance
from distserve_testing.reference import load_reference, require_greedy

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Work
from distserve_worker.text.loading import load_text

LENGTHS = [*range(1, 9), 11, 13, 15, 16, 17, 19, 23, 29, 31, 32, 33, 41, 47, 63, 64, 65, 80, 96, 130, 200, 300, 450]
TOKENS = 64
TEXT = Path(__file__).parents[2] / "LICENSE"
KV_BYTES = 256_000_000


@pytest.fixture(scope="module")
def prompts(smollm2_path: Path) -> list[tuple[int, ...]]:
    """Pieces of an English text, each from another place."""
    tokens = load_text(smollm2_path).tokenizer.encode(TEXT.read_text(), add_special_tokens=False)
    starts = [37 * number for number in range(len(LENGTHS))]
    return [tuple(tokens[start : start + length]) for start, length in zip(starts, LENGTHS, strict=True)]


@pytest.fixture(scope="module")
def outputs(smollm2_path: Path, prompts: list[tuple[int, ...]]) -> list[list[int]]:
    """What a prefill and a decode engine make of all prompts at once, greedily."""
    prefill, decode = (build_engine(EngineConfig(role, smollm2_path, KV_BYTES)) for role in ("prefill", "decode"))
    works = [Work(str(number), prompt, max_tokens=TOKENS) for number, prompt in enumerate(prompts)]
    made = generate(prefill, decode, works)
    return [made[str(number)] for number in range(len(prompts))]


def test_every_prompt_is_answered_in_full(prompts: list[tuple[int, ...]], outputs: list[list[int]]) -> None:
    assert [len(prompt) for prompt in prompts] == LENGTHS
    assert [len(output) for output in outputs] == [TOKENS] * 30


@pytest.mark.parametrize("number", range(len(LENGTHS)), ids=[f"{length}-tokens" for length in LENGTHS])
def test_greedy_text_equals_that_of_transformers(
    smollm2_reference: transformers.LlamaForCausalLM,
    prompts: list[tuple[int, ...]],
    outputs: list[list[int]],
    number: int,
) -> None:
    require_greedy(smollm2_reference, prompts[number], outputs[number])


def test_logits_in_bf16_are_as_near_to_fp32_as_those_of_transformers(
    smollm2_path: Path, smollm2_reference: transformers.LlamaForCausalLM, prompts: list[tuple[int, ...]]
) -> None:
    tokens = prompts[-2]
    half = load_reference(smollm2_path).to(torch.bfloat16)
    half.model.rotary_emb = smollm2_reference.model.rotary_emb  # conversion has rounded its frequencies
    with torch.inference_mode():
        exact, theirs = (model(torch.tensor([tokens])).logits[0].float() for model in (smollm2_reference, half))
    ours = Instance(smollm2_path, "BF16").logits(tokens)
    assert 0 < (ours - exact).square().mean() < 2.0 * (theirs - exact).square().mean()
    assert (ours.argmax(-1) == exact.argmax(-1)).float().mean() > 0.95
