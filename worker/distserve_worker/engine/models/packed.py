"""Matrices in oneDNN's own order of elements: on a CPU a step of few tokens takes about half the time with them."""

import math
import mmap
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch

_ROWS: Final = 32  # the order is the same for any number of rows but one


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A `Linear` in the compute dtype."""

    weight: torch.Tensor  # opaque
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


def packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether matrices can be packed here."""
    return device.type == "cpu" and _has_kernel(dtype)


def packed(weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
    """A packed copy of `weight` [outputs, inputs]."""
    with torch.inference_mode():
        return PackedLinear(torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS), bias)


def scratch(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a while; a CPU's goes back to the system at once, an allocator might keep it."""
    count = math.prod(shape) * dtype.itemsize
    if not count or device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(mmap.mmap(-1, count), dtype=dtype).view(shape)


@cache
def _has_kernel(dtype: torch.dtype) -> bool:
    """Whether this build of torch has it for this CPU."""
    try:
        with torch.inference_mode():
            out = packed(torch.ones((32, 32), dtype=dtype), None)(torch.ones((2, 32), dtype=dtype))
    except (AttributeError, RuntimeError):
        return False
    return bool((out == out.shape[1]).all())
