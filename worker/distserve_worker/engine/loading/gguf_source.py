"""Llama weights out of a GGUF file, dequantised to FP32 and in Hugging Face's rotary order."""

import re
from typing import Final

import gguf
import numpy as np
import torch

from distserve_worker.engine.loading.source import StoredTensor, require_complete
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_config import ROPE_FACTORS
from distserve_worker.weights.gguf_header import GgufHeader, GgufTensor

_TOP: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufSource:
    """A `TensorSource` over one GGUF file."""

    def __init__(self, header: GgufHeader, config: ModelConfig) -> None:
        self._heads = {"q_proj": config.heads, "k_proj": config.kv_heads}
        # rope factors are part of the configuration
        tensors = [tensor for tensor in header.tensors.values() if tensor.name != ROPE_FACTORS]
        self.stored = {stored.name: stored for stored in (_stored(header, tensor) for tensor in tensors)}
        require_complete(self.stored.values())
        self._data = np.memmap(header.path, mode="r")

    def load(self, name: str) -> torch.Tensor:
        """See `TensorSource.load`."""
        stored = self.stored[name]
        kind = gguf.GGMLQuantizationType[stored.dtype]
        raw = self._data[stored.offset : stored.offset + stored.nbytes]
        try:
            values = gguf.quants.dequantize(raw.reshape(gguf.quant_shape_to_byte_shape(stored.shape, kind)), kind)
        except (NotImplementedError, ValueError) as error:
            raise ModelInvalid(f"{stored.path}: tensor {name}: cannot undo {stored.dtype} ({error})") from error
        # what was stored in FP32 is still a read-only view of the file
        tensor = torch.from_numpy(np.require(values, np.float32, "W").reshape(stored.shape))
        heads = self._heads.get(name.split(".")[-2])
        return tensor if heads is None else _halves_apart(tensor, heads)


def _stored(header: GgufHeader, tensor: GgufTensor) -> StoredTensor:
    try:
        kind = gguf.GGMLQuantizationType(tensor.ggml_type)
    except ValueError as error:
        raise ModelInvalid(f"{header.path}: tensor {tensor.name}: type {tensor.ggml_type} is not known") from error
    items, item_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = int(np.prod(tensor.shape))
    return StoredTensor(
        _huggingface_name(tensor.name), kind.name, tensor.shape, header.path, tensor.offset, count // items * item_bytes
    )


def _huggingface_name(name: str) -> str:
    """Names that nothing maps to stay, so that the loader reports them as unexpected."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.weight"
    return _TOP.get(name, name)


def _halves_apart(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo GGUF's order for rotary Q and K, which interleaves the two halves of each head's rows."""
    pairs = weight.view(heads, weight.shape[0] // heads // 2, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape)
