"""Small models of every family with random weights, written by transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers

_ROTARY: Final = {
    "vocab_size": 211,  # no number of ranks divides it
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # larger than usual, so that random weights tell tokens clearly apart
}
_GPT2: Final = {
    "vocab_size": 211,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "n_positions": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_OPT: Final = {
    "vocab_size": 211,
    "hidden_size": 48,
    "ffn_dim": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 256,
    "init_std": 0.2,
}
FAMILIES: Final[Mapping[str, tuple[type[transformers.PretrainedConfig], Mapping[str, Any]]]] = {
    "llama": (transformers.LlamaConfig, _ROTARY),
    "mistral": (transformers.MistralConfig, {**_ROTARY, "sliding_window": None}),
    "qwen2": (transformers.Qwen2Config, _ROTARY),
    "qwen3": (transformers.Qwen3Config, {**_ROTARY, "head_dim": 16}),
    "gpt2": (transformers.GPT2Config, _GPT2),
    "opt": (transformers.OPTConfig, _OPT),
}


def write_family(
    folder: Path, family: str, dtype: torch.dtype = torch.float32, shard_size: str = "5GB", **changes: Any
) -> transformers.PreTrainedModel:
    """A model of `family` stored in `dtype` in `folder`, and returned in FP32; `changes` are fields of its config."""
    kind, fields = FAMILIES[family]
    config = kind(**{**fields, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        for weight in model.parameters():
            if weight.dim() == 1:  # biases are 0 and norms 1 at first, which would hide that one is left out
                weight.data.add_(torch.randn(weight.shape) * 0.2)
    transformers.utils.logging.disable_progress_bar()
    model.to(dtype).save_pretrained(folder, max_shard_size=shard_size)
    return reloaded(folder, torch.float32)


def reloaded(folder: Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """In `dtype` as a user loads it: converting a model in place would round its rotary frequencies too."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
