"""A model's configuration out of GGUF metadata."""

import struct
from typing import Final

from distserve_worker.weights.config import Activation, ModelConfig
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.families.rotary import RotaryConfig, checked_rotary
from distserve_worker.weights.gguf_header import GgufHeader
from distserve_worker.weights.gguf_metadata import GgufMetadata
from distserve_worker.weights.gguf_rope import rope_of_gguf
from distserve_worker.weights.rope_scaling import RopeBase

_EOS_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")


def config_of_gguf(header: GgufHeader) -> ModelConfig:
    """The configuration that `header` states. Raises `ModelInvalid` naming the key that is missing."""
    try:
        return checked_rotary(_config(header, GgufMetadata(header)), str(header.path))
    except (TypeError, ValueError, OverflowError, IndexError, struct.error) as error:
        raise ModelInvalid(f"{header.path}: a value of the metadata cannot be used ({error})") from error


def _config(header: GgufHeader, metadata: GgufMetadata) -> RotaryConfig:
    count, number = metadata.count, metadata.number
    hidden, heads = count("embedding_length", "hidden"), count("attention.head_count", "heads")
    head_dim = count("attention.key_length", "head_dim", hidden // heads)
    layers, positions = count("block_count", "layers"), count("context_length", "max_positions")
    return RotaryConfig(
        architecture=metadata.architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=count("attention.head_count_kv", "kv_heads", heads),
        head_dim=head_dim,
        ffn=count("feed_forward_length", "ffn"),
        vocab=_vocab(header, metadata),
        max_positions=positions,
        norm_eps=number("attention.layer_norm_rms_epsilon"),
        activation=Activation.SILU,
        tied_embeddings="output.weight" not in header.tensors,
        eos_token_ids=_eos(header),
        rope=rope_of_gguf(header, metadata, RopeBase(number("rope.freq_base", 10000.0), head_dim, positions)),
        windows=(None,) * layers,
    )


def _vocab(header: GgufHeader, metadata: GgufMetadata) -> int:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return metadata.count("vocab_size", "vocab", len(tokens) if isinstance(tokens, list) else None)


def _eos(header: GgufHeader) -> frozenset[int]:
    values = (header.metadata.get(f"tokenizer.ggml.{key}") for key in _EOS_KEYS)
    return frozenset(int(value) for value in values if isinstance(value, int))
