"""Every family through the engines, with the engine's own attention over KV in blocks: greedy text is transformers'."""

from pathlib import Path
from typing import Any

import pytest
import torch
from distserve_testing.engines import generate
from distserve_testing.families import write_family
from distserve_testing.reference import require_greedy

from distserve_worker.engine.blueprint import EngineConfig
from distserve_worker.engine.building import build_engine
from distserve_worker.engine.interface import Work

KV_BYTES = 16_000_000
LENGTHS = [1, 5, 16, 33, 70]


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"num_key_value_heads": 1}),
        ("mistral", {"sliding_window": 7}),
        ("mistral", {"sliding_window": 40}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 17, "max_window_layers": 1}),
        ("qwen3", {}),
        ("gpt2", {}),
        ("opt", {}),
        ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    ],
)
def test_greedy_text_equals_that_of_transformers(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    reference = write_family(tmp_path, family, eos_token_id=None, **changes)
    prefill, decode = (build_engine(EngineConfig(role, tmp_path, KV_BYTES)) for role in ("prefill", "decode"))
    generator = torch.Generator().manual_seed(5)
    prompts = [tuple(torch.randint(0, 211, (length,), generator=generator).tolist()) for length in LENGTHS]
    outputs = generate(prefill, decode, [Work(str(n), prompt, max_tokens=24) for n, prompt in enumerate(prompts)])
    for number, prompt in enumerate(prompts):
        assert len(outputs[str(number)]) == 24
        require_greedy(reference, prompt, outputs[str(number)])
