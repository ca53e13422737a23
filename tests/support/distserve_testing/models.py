"""Small models on disk, written by the libraries that own the formats: gguf and transformers."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import torch
import transformers

from distserve_worker.engine.loading.inventory import all_shapes
from distserve_worker.weights.reading import read_config

LLAMA_METADATA: Final[Mapping[str, Any]] = {
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 0.5,
    "llama.vocab_size": 10,
}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] = LLAMA_METADATA,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    architecture: str = "llama",
) -> Path:
    """A GGUF file with the given metadata and tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


@dataclass(frozen=True, slots=True)
class TinyLlama:
    """A model folder and the same model in transformers."""

    folder: Path
    reference: transformers.LlamaForCausalLM

    def greedy(self, prompt: tuple[int, ...], count: int) -> list[int]:
        """The `count` most likely next tokens, one after another."""
        tokens = list(prompt)
        for _ in range(count):
            with torch.inference_mode():
                logits = self.reference(torch.tensor([tokens])).logits
            tokens.append(int(logits[0, -1].argmax()))
        return tokens[len(prompt) :]


def write_tiny_llama(folder: Path, max_shard_size: str = "5GB", **changes: Any) -> transformers.LlamaForCausalLM:
    """A Llama with random weights, saved to `folder` and returned; `changes` are fields of its configuration."""
    fields = {
        "vocab_size": 211,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "eos_token_id": 2,
        # larger than usual, so that random weights tell tokens clearly apart
        "initializer_range": 0.2,
    }
    config = transformers.LlamaConfig(**{**fields, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval()
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def write_blank_llama(folder: Path, **changes: Any) -> None:
    """A Llama whose weights are all 0, as large as `changes` make it: they take no room on the disk, only to load."""
    transformers.LlamaConfig(**changes).save_pretrained(folder)
    tensors, end = {}, 0
    for name, shape in all_shapes(read_config(folder)).items():
        begin, end = end, end + 2 * math.prod(shape)
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (begin, end)}
    header = json.dumps(tensors).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(file.tell() + end)
