"""The number formats that the engine computes in, by the names that users write."""

from typing import Final

import torch

DTYPES: Final = {"FP32": torch.float32, "BF16": torch.bfloat16}
