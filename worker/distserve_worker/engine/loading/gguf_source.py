"""Llama weights out of a GGUF file, dequantised to FP32 and in Hugging Face's rotary order."""

import math
import re
from typing import Final

import gguf
import numpy as np
import torch

from distserve_worker.engine.loading.reading import OpenFile, opened
from distserve_worker.engine.loading.source import StoredTensor, ranges, require_complete
from distserve_worker.engine.models.interface import Part
from distserve_worker.weights.config import ModelConfig
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_header import GgufHeader, GgufTensor
from distserve_worker.weights.gguf_rope import ROPE_FACTORS

_TOP: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_TURNED: Final = frozenset({"q_proj", "k_proj"})
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


_PIECE: Final = 1 << 18  # items that are dequantised at once


class GgufSource:
    """A `TensorSource` over one GGUF file."""

    def __init__(self, header: GgufHeader, config: ModelConfig) -> None:
        self._head_dim = config.head_dim
        # rope factors are part of the configuration
        tensors = [tensor for tensor in header.tensors.values() if tensor.name != ROPE_FACTORS]
        self.stored = {stored.name: stored for stored in (_stored(header, tensor) for tensor in tensors)}
        require_complete(self.stored.values())

    def require_readable(self, name: str) -> None:
        """See `TensorSource.require_readable`."""
        stored = self.stored[name]
        where = f"{stored.path}: tensor {name}"
        kind = gguf.GGMLQuantizationType[stored.dtype]
        items, item_bytes = gguf.GGML_QUANT_SIZES[kind]
        try:
            gguf.quants.dequantize(np.zeros((1, item_bytes), np.uint8), kind)
        except (NotImplementedError, ValueError) as error:
            raise ModelInvalid(f"{where}: cannot undo {stored.dtype} ({error})") from error
        if not stored.nbytes or stored.shape[-1] % items:
            raise ModelInvalid(f"{where} of the shape {stored.shape}: {stored.dtype} has rows of multiples of {items}")

    def read(self, name: str, part: Part | None, out: torch.Tensor) -> None:
        """See `TensorSource.read`; whole rows are read, since a row is quantised in blocks."""
        stored = self.stored[name]
        matrix = stored.shape if len(stored.shape) == 2 else (1, stored.shape[0])
        if out.dim() == 1:
            part, out = part and Part(1, part.start, part.stop), out.unsqueeze(0)
        rows, columns = ranges((matrix[0], matrix[1]), part)
        turned = name.split(".")[-2] in _TURNED
        unit = self._head_dim if turned else 1
        step = max(1, _PIECE // matrix[1] // unit) * unit
        with opened(stored.path) as file:
            for start in range(0, len(rows), step):
                piece = _dequantised(file, stored, rows[start : start + step], stored.nbytes // matrix[0])
                if turned:
                    piece = _halves_apart(piece, unit)
                out[start : start + step].copy_(piece[:, columns.start : columns.stop])


def _dequantised(file: OpenFile, stored: StoredTensor, rows: range, row_bytes: int) -> torch.Tensor:
    """Rows of a tensor in FP32."""
    kind = gguf.GGMLQuantizationType[stored.dtype]
    raw = np.empty((len(rows), row_bytes), np.uint8)
    file.read_into(raw.data.cast("B"), stored.offset + rows.start * row_bytes)
    values = gguf.quants.dequantize(raw, kind)
    return torch.from_numpy(np.require(values, np.float32, "W"))


def _stored(header: GgufHeader, tensor: GgufTensor) -> StoredTensor:
    try:
        kind = gguf.GGMLQuantizationType(tensor.ggml_type)
    except ValueError as error:
        raise ModelInvalid(f"{header.path}: tensor {tensor.name}: type {tensor.ggml_type} is not known") from error
    items, item_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = math.prod(tensor.shape)
    return StoredTensor(
        _huggingface_name(tensor.name), kind.name, tensor.shape, header.path, tensor.offset, count // items * item_bytes
    )


def _huggingface_name(name: str) -> str:
    """Names that nothing maps to stay, so that the loader reports them as unexpected."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.weight"
    return _TOP.get(name, name)


def _halves_apart(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Undo GGUF's order for rotary Q and K, which interleaves the halves of each head's rows; heads are whole."""
    pairs = rows.view(-1, head_dim // 2, 2, rows.shape[1])
    return pairs.transpose(1, 2).reshape(rows.shape)
