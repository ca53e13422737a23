"""A selection as buffers to send or to fill one after another, on whatever device its memory is."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.host import Bytes, selected_parts
from distserve_worker.transfer.memory.selection import Selection

_STAGED_BYTES: Final = 1 << 20  # stays in a core's cache between copying and sending


def outgoing(selection: Selection) -> Iterator[Sequence[memoryview]]:
    """All bytes of a selection in order; what was yielded may change when the next is asked for."""
    if selection.region.memory.is_cuda:
        return _from_device(selection)
    return _from_host(selection)


def incoming(selection: Selection) -> Iterator[memoryview]:
    """Buffers for all bytes of a selection in order; each is to be filled before the next is asked for.

    Only when all have been taken, and the end was asked for, do they count.
    """
    if selection.region.memory.is_cuda:
        return _to_device(selection)
    return _to_host(selection)


def runs(selection: Selection, most_bytes: int = _STAGED_BYTES) -> Iterator[slice]:
    """Consecutive blocks of a selection that take `most_bytes` together; one block at least."""
    each = max(1, most_bytes // selection.bytes_per_block)
    for first in range(0, len(selection.blocks), each):
        yield slice(first, min(first + each, len(selection.blocks)))


def _from_host(selection: Selection) -> Iterator[Sequence[memoryview]]:
    parts = selected_parts(selection)
    if selection.is_contiguous:
        yield [part.reshape(-1).data for part in parts]
        return
    for run in runs(selection):
        staged = _staged(selection, run)
        for row in staged:
            np.copyto(row, next(parts))
        yield [staged.reshape(-1).data]


def _to_host(selection: Selection) -> Iterator[memoryview]:
    parts = selected_parts(selection)
    if selection.is_contiguous:
        for part in parts:
            yield part.reshape(-1).data
        return
    for run in runs(selection):
        staged = _staged(selection, run)
        yield staged.reshape(-1).data
        for row in staged:
            np.copyto(next(parts), row)


def _staged(selection: Selection, run: slice) -> Bytes:
    return np.empty((run.stop - run.start, *selection.shape), np.uint8)


def _from_device(selection: Selection) -> Iterator[Sequence[memoryview]]:
    blocks = DeviceBlocks(selection)
    for run in runs(selection):
        with blocks.on_stream():
            staged = blocks.gather(run).cpu()
        yield [staged.numpy().data]


def _to_device(selection: Selection) -> Iterator[memoryview]:
    with DeviceBlocks(selection) as blocks:
        for run in runs(selection):
            staged = _staged(selection, run)
            yield staged.reshape(-1).data
            blocks.scatter(run, staged)
