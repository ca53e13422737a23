"""Brings what a step is made of to the device that computes it."""

from collections.abc import Sequence

import torch


def uploaded(numbers: Sequence[int] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Whole numbers on `device`; a tensor on the CPU must not change afterwards.

    A GPU fetches them when it comes to it, out of memory that stays until then: nobody waits for the steps before.
    """
    here = torch.as_tensor(numbers)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here
