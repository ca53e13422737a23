"""The number formats that the engine computes in, by the names that users write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch


@dataclass(frozen=True, slots=True)
class Precision:
    """`compute` is the format of activations, KV and all weights, but for matrices of layers that are `quantized`."""

    name: str
    compute: torch.dtype
    quantized: bool = False  # to INT8, one scale for each output


PRECISIONS: Final[Mapping[str, Precision]] = {
    precision.name: precision
    for precision in (
        Precision("FP32", torch.float32),
        Precision("BF16", torch.bfloat16),
        Precision("FP16", torch.float16),
        Precision("INT8", torch.bfloat16, quantized=True),
    )
}
DTYPES: Final[Mapping[str, torch.dtype]] = {name: precision.compute for name, precision in PRECISIONS.items()}
