"""A selection of a GPU's memory: gathered and scattered there, on a stream that no step uses."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Self

from distserve_worker.transfer.memory.cuda import on_gpu, on_stream
from distserve_worker.transfer.memory.host import Bytes
from distserve_worker.transfer.memory.selection import Selection, within

if TYPE_CHECKING:
    import torch

_POLL_SECONDS: Final = 0.0002


class DeviceBlocks:
    """Blocks of a selection, used by one thread; what it begins waits for nothing that others began before.

    Used in a `with`, whose end comes, however it comes, when the GPU writes to no block any more. Every method raises
    `TransferError`.
    """

    def __init__(self, selection: Selection) -> None:
        import torch

        region = selection.region
        shape = (-1, region.shard.layers, 2, region.shard.heads, region.layout.head_bytes)
        self._view = region.memory.view(shape)[within(region.shard, selection.part)]
        self._device = region.memory.device
        with on_gpu(self._device):
            self.stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with self.on_stream():
            self._blocks = torch.tensor(selection.blocks, device=region.memory.device)
        # What this stream, or one of the other GPU's for it, may still read: torch hands memory out again as soon as
        # nobody refers to it, in the order of the stream that it was made on alone.
        self._read: list[torch.Tensor | Bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with on_gpu(self._device):
            self.stream.synchronize()
        self._read.clear()

    def on_stream(self) -> AbstractContextManager[None]:
        """Whatever is begun under it runs on this selection's device and stream."""
        return on_stream(self.stream)

    def gather(self, run: slice) -> "torch.Tensor":
        """Copy of a run of blocks on the GPU, [blocks, layers, 2, heads, bytes of one head]."""
        with self.on_stream():
            return self._view.index_select(0, self._blocks[run])

    def room(self, run: slice) -> "torch.Tensor":
        """Memory on the GPU for what `scatter` takes."""
        with self.on_stream():
            return self._view.new_empty((run.stop - run.start, *self._view.shape[1:]))

    def scatter(self, run: slice, content: "torch.Tensor | Bytes", after: "DeviceBlocks | None" = None) -> None:
        """Write a run of blocks; `content` as `gather` gives it, on the CPU or on a GPU, begun by `after`.

        What another one has begun is kept until it has been read, which `wait` or the end of the `with` tells.
        """
        import torch

        with self.on_stream():
            if after is not None:
                self.stream.wait_stream(after.stream)
                self._read.append(content)
            there = torch.as_tensor(content).view(-1, *self._view.shape[1:]).to(self._view.device)
            self._view.index_copy_(0, self._blocks[run], there)

    def wait(self, check: Callable[[], None]) -> None:
        """Until everything that was begun is done; `check` is called again and again and may raise."""
        while not self._is_done():
            check()
            time.sleep(_POLL_SECONDS)
        self._read.clear()

    def _is_done(self) -> bool:
        with on_gpu(self._device):
            return self.stream.query()
