"""A selection of a GPU's memory: gathered and scattered there, on a stream that no step uses."""

import functools
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


@functools.cache
def copying_stream(device: "torch.device") -> "torch.cuda.Stream":
    """One for all transfers: torch keeps memory for the stream that it was used on, so each more would keep as much."""
    import torch

    with on_gpu(device):
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class DeviceBlocks:
    """Blocks of a selection, used by one thread.

    What it begins runs on one stream for all transfers of the GPU, where nothing waits for another process. Used in a
    `with`, whose end comes, however it comes, when the GPU writes to no block any more. Every method raises
    `TransferError`.
    """

    def __init__(self, selection: Selection) -> None:
        import torch

        self._view = _words(selection)
        self._device = selection.region.memory.device
        self.stream = copying_stream(self._device)
        with self.on_stream():
            self._blocks = torch.tensor(selection.blocks, device=self._device)
        # What this stream, or one of the other GPU's for it, may still read: torch hands memory out again as soon as
        # nobody refers to it, in the order of the stream that it was made on alone.
        self._read: list[torch.Tensor | Bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        begun = self._begun()
        with on_gpu(self._device):
            begun.synchronize()
        self._read.clear()

    def on_stream(self) -> AbstractContextManager[None]:
        """Whatever is begun under it runs on this selection's device and stream."""
        return on_stream(self.stream)

    def gather(self, run: slice) -> "torch.Tensor":
        """Copy of a run of blocks on the GPU, as bytes in the order of the selection."""
        import torch

        with self.on_stream():
            return self._view.index_select(0, self._blocks[run]).view(-1).view(torch.uint8)

    def room(self, run: slice) -> "torch.Tensor":
        """Memory on the GPU for what `scatter` takes, as bytes."""
        import torch

        with self.on_stream():
            return self._view.new_empty((run.stop - run.start, *self._view.shape[1:])).view(-1).view(torch.uint8)

    def scatter(self, run: slice, content: "torch.Tensor | Bytes", after: "DeviceBlocks | None" = None) -> None:
        """Write a run of blocks; `content`: its bytes, on the CPU or on a GPU, begun by `after`.

        What another one has begun is kept until it has been read, which `wait` or the end of the `with` tells.
        """
        import torch

        with self.on_stream():
            if after is not None:
                self.stream.wait_stream(after.stream)
                self._read.append(content)
            words = torch.as_tensor(content).view(-1).view(self._view.dtype).view(-1, *self._view.shape[1:])
            self._view.index_copy_(0, self._blocks[run], words.to(self._device))

    def wait(self, check: Callable[[], None]) -> None:
        """Until everything that was begun is done; `check` is called again and again and may raise."""
        begun = self._begun()
        while not self._is_over(begun):
            check()
            time.sleep(_POLL_SECONDS)
        self._read.clear()

    def _begun(self) -> "torch.cuda.Event":
        """What tells when all that was begun until now is over; the stream itself may have more to do for others."""
        import torch

        with self.on_stream():
            begun = torch.cuda.Event()  # type: ignore[no-untyped-call]
            begun.record(self.stream)
        return begun

    def _is_over(self, begun: "torch.cuda.Event") -> bool:
        with on_gpu(self._device):
            return bool(begun.query())  # type: ignore[no-untyped-call]


def _words(selection: Selection) -> "torch.Tensor":
    """Its part of all blocks of the region, [blocks, layers x 2, words], in the largest words that a head is made of.

    A thread of a GPU copies one element, be it a byte or eight; and the fewer dimensions, the less it computes for it.
    """
    import torch

    region = selection.region
    shard, nbytes = region.shard, region.layout.head_bytes
    word = next(word for word in (torch.int64, torch.int32, torch.int16) if nbytes % word.itemsize == 0)
    each = nbytes // word.itemsize
    _, layers, _, heads = within(shard, selection.part)
    rows = region.memory.view(word).view(-1, 2 * shard.layers, shard.heads * each)
    return rows[:, 2 * layers.start : 2 * layers.stop, each * heads.start : each * heads.stop]
