"""Llama's logits equal those of transformers, prefilled and decoded, for every switch of the family."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from distserve_testing.models import write_tiny_llama

from distserve_worker.engine.attention import DecodeAttention, PrefillAttention
from distserve_worker.engine.dtypes import DTYPES
from distserve_worker.engine.interface import KvLayout
from distserve_worker.engine.kv_memory import KvMemory
from distserve_worker.engine.loading.loading_model import load_model
from distserve_worker.weights.reading import read_config

LENGTHS = [5, 33]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SWITCHES: dict[str, dict[str, Any]] = {
    "grouped-query": {},
    "multi-head": {"num_key_value_heads": 6},
    "multi-query": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "wide-heads": {"head_dim": 32},
    "llama3-rope": {"rope_parameters": LLAMA3},
    "linear-rope": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}},
}


@torch.inference_mode()
def _logits(folder: Path, prompts: list[list[int]], continuations: list[list[int]], dtype: str) -> list[torch.Tensor]:
    """Logits [tokens, vocab] of each prompt, prefilled together, followed by its continuation, decoded together."""
    config, device = read_config(folder), torch.device("cpu")
    model = load_model(folder, config, dtype, device).model
    memory = KvMemory(KvLayout(config.layers, config.kv_heads, config.head_dim, 16, dtype), 16, DTYPES[dtype], device)
    tables = [[3, 9, 1], [4, 2, 7]]
    lengths = [len(prompt) for prompt in prompts]
    prefill = PrefillAttention(memory, lengths, tables)
    flat = torch.tensor([token for prompt in prompts for token in prompt])
    rows = list(torch.split(model.logits(model.forward(flat, prefill.positions, prefill)), lengths))
    block_tables = torch.tensor(tables)
    for step in range(len(continuations[0])):
        positions = [length + step for length in lengths]
        decode = DecodeAttention(memory, block_tables, memory.row_indices(block_tables), positions)
        tokens = torch.tensor([continuation[step] for continuation in continuations])
        logits = model.logits(model.forward(tokens, decode.positions, decode))
        rows = [torch.cat((row, logits[index : index + 1])) for index, row in enumerate(rows)]
    return rows


def _compare(folder: Path, reference: transformers.LlamaForCausalLM, dtype: str, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(3)
    texts = [torch.randint(0, 211, (length + 6,), generator=generator).tolist() for length in LENGTHS]
    prompts = [text[:length] for text, length in zip(texts, LENGTHS, strict=True)]
    continuations = [text[length:] for text, length in zip(texts, LENGTHS, strict=True)]
    for text, logits in zip(texts, _logits(folder, prompts, continuations, dtype), strict=True):
        with torch.inference_mode():
            expected = reference(torch.tensor([text])).logits[0].float()
        torch.testing.assert_close(logits, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("switch", SWITCHES)
def test_logits_in_fp32(tmp_path: Path, switch: str) -> None:
    _compare(tmp_path, write_tiny_llama(tmp_path, **SWITCHES[switch]), "FP32", 1e-4)


def _reloaded(folder: Path, dtype: torch.dtype) -> transformers.LlamaForCausalLM:
    """In `dtype` as a user loads it: converting a model in place would round its rotary frequencies too."""
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def test_logits_in_bf16(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path, initializer_range=0.05)
    _compare(tmp_path, _reloaded(tmp_path, torch.bfloat16), "BF16", 0.03)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_weights_stored_in_half_precision_are_computed_with_in_fp32(tmp_path: Path, stored: torch.dtype) -> None:
    write_tiny_llama(tmp_path).to(stored).save_pretrained(tmp_path)
    _compare(tmp_path, _reloaded(tmp_path, torch.float32), "FP32", 1e-4)
