"""A selection of a GPU's memory: gathered and scattered there, on a stream that no step uses."""

from typing import TYPE_CHECKING

from distserve_worker.transfer.memory.host import Bytes
from distserve_worker.transfer.memory.selection import Selection, within

if TYPE_CHECKING:
    import torch


class DeviceBlocks:
    """Blocks of a selection in its own region or, for a reader that has mapped it, in another process's.

    Used by one thread; its stream waits for nothing that was begun before on others.
    """

    def __init__(self, selection: Selection, memory: "torch.Tensor | None" = None) -> None:
        """`memory` of the geometry of the selection's region; by default the region's own."""
        import torch

        memory = selection.region.memory if memory is None else memory
        shard = selection.region.shard
        shape = (-1, shard.layers, 2, shard.heads, selection.region.layout.head_bytes)
        self._view = memory.view(shape)[within(shard, selection.part)]
        self.stream = torch.cuda.Stream(memory.device)  # type: ignore[no-untyped-call]
        self._streams = torch.cuda.stream
        with self._streams(self.stream):
            self._blocks = torch.tensor(selection.blocks, device=memory.device)

    def gather(self, run: slice) -> "torch.Tensor":
        """Copy of a run of blocks on the GPU, [blocks, layers, 2, heads, bytes of one head]."""
        with self._streams(self.stream):
            return self._view.index_select(0, self._blocks[run])

    def scatter(self, run: slice, content: "torch.Tensor | Bytes") -> None:
        """Write a run of blocks; `content` as `gather` gives it, on the CPU or on a GPU."""
        import torch

        with self._streams(self.stream):
            tensor = torch.as_tensor(content).view(-1, *self._view.shape[1:])
            self._view.index_copy_(0, self._blocks[run], tensor.to(self._view.device))

    def wait(self) -> None:
        """Until all copies are done."""
        self.stream.synchronize()
