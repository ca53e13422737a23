"""Matrices in INT8 with one scale for each output; activations stay as they are."""

from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch.nn.functional import linear

_LARGEST: Final = 127
_PACKED_ROWS: Final = 16  # for more rows the kernel for INT8 is slower than one for floats on a converted copy
_VECTOR: Final = 32  # inputs: the kernel reads in such pieces, beyond the end of a row where they do not divide it


@dataclass(frozen=True, slots=True)
class Int8Linear:
    """A `Linear` whose outputs are scaled after they are summed."""

    weight: torch.Tensor  # [outputs, inputs] INT8
    scales: torch.Tensor  # [outputs] in the compute dtype
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        if x.shape[0] <= _PACKED_ROWS and x.shape[1] % _VECTOR == 0 and _has_kernel(x.device, x.dtype):
            out = torch._weight_int8pack_mm(x, self.weight, self.scales)
        else:
            out = linear(x, self.weight.to(x.dtype)).mul_(self.scales)
        return out if self.bias is None else out.add_(self.bias)


def quantize(whole: torch.Tensor, inputs: range, packed: torch.Tensor, scales: torch.Tensor) -> None:
    """Write the `inputs` of the FP32 matrix `whole` to `packed`, and the scales of its outputs, of all their inputs.

    A scale is rounded to its dtype first, so that weights are rounded to multiples of what they are computed with.
    `whole` is used up.
    """
    lowest, highest = torch.aminmax(whole, dim=1)
    scales.copy_(torch.maximum(-lowest, highest) / _LARGEST)
    steps = scales.float().clamp_min_(torch.finfo(torch.float32).tiny).unsqueeze(1)
    packed.copy_(whole.div_(steps).round_().clamp_(-_LARGEST, _LARGEST)[:, inputs.start : inputs.stop])


@cache
def _has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch has its own kernel here; those for other types than BF16, and for GPUs, are plain loops."""
    if device.type != "cpu" or dtype is not torch.bfloat16:
        return False
    x = torch.ones((1, 32), dtype=dtype, device=device)
    weight = torch.ones((32, 32), dtype=torch.int8, device=device)
    try:
        out = torch._weight_int8pack_mm(x, weight, torch.ones(32, dtype=dtype, device=device))
    except (AttributeError, RuntimeError):
        return False
    return bool((out == x.shape[1]).all())
