"""The block that shows whether bytes arrive over a new communicator.

It takes the way of all others, so that no request is the first to pay for what CUDA and NCCL load when it is needed.
"""

from typing import TYPE_CHECKING, Final

from distserve_worker.engine.interface import KvLayout, KvShard, Region
from distserve_worker.transfer.memory.cuda import on_stream
from distserve_worker.transfer.memory.device import copying_stream
from distserve_worker.transfer.memory.selection import Selection

if TYPE_CHECKING:
    import torch

_LAYOUT: Final = KvLayout(layers=1, kv_heads=1, head_dim=64, block_tokens=16, dtype="FP16")  # 4 KiB
_WHOLE: Final = KvShard(0, 1, 0, 1)
_CONTENT: Final = [place % 251 for place in range(_LAYOUT.block_bytes)]


def first_block(device: "torch.device") -> Selection:
    """What the serving side sends."""
    import torch

    return _selected(torch.tensor(_CONTENT, dtype=torch.uint8), device)


def empty_block(device: "torch.device") -> Selection:
    """What the reader fills with it."""
    import torch

    return _selected(torch.zeros(len(_CONTENT), dtype=torch.uint8), device)


def has_arrived(block: Selection) -> bool:
    """Whether the first block is what it is filled with."""
    memory = block.region.memory
    with on_stream(copying_stream(memory.device)):  # on any other one it would wait for a step
        return bool(memory.flatten().tolist() == _CONTENT)


def _selected(content: "torch.Tensor", device: "torch.device") -> Selection:
    with on_stream(copying_stream(device)):
        memory = content.to(device).view(1, -1)
    return Selection(Region(_WHOLE, _LAYOUT, memory), (0,), _WHOLE)
