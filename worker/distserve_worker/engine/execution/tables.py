"""Block tables of running requests, kept on a rank and changed in place: most steps change a few numbers of them."""

from collections.abc import Sequence
from typing import Final

import torch

from distserve_worker.engine.execution.batch import Running, Written
from distserve_worker.engine.execution.uploading import uploaded

_GROWTH: Final = 2


class LaneTables:
    """The tables of one lane: a row for each seat.

    Its unused end is filled with the request's own first block: what attention masks away must still be finite.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks = torch.zeros((0, 0), dtype=torch.long)  # on the CPU: it is changed number by number

    def take(self, running: Running) -> torch.Tensor:
        """The tables for a batch [requests, blocks of the longest], after what is new in them."""
        for written in running.written:
            self._write(written)
        return uploaded(self._blocks[list(running.seats)], self._device)

    def _write(self, written: Written) -> None:
        end = written.first + len(written.blocks)
        self._make_room(written.seat + 1, end)
        row = self._blocks[written.seat]
        row[written.first : end] = torch.tensor(written.blocks)
        row[end:] = row[0].clone()

    def _make_room(self, seats: int, places: int) -> None:
        rows, columns = self._blocks.shape
        if seats <= rows and places <= columns:
            return
        larger = torch.zeros((_grown(rows, seats), _grown(columns, places)), dtype=torch.long)
        larger[:rows, :columns] = self._blocks
        if columns:
            larger[:rows, columns:] = self._blocks[:, :1]
        self._blocks = larger


def _grown(size: int, needed: int) -> int:
    return size if needed <= size else max(needed, _GROWTH * size)


def similar_runs(sizes: Sequence[int], always: int, most: int) -> list[slice]:
    """Cut rising `sizes` into runs in which the largest is at most twice the smallest, so padding at most doubles.

    Sizes up to `always` count as similar. Padded, a run has no more than `most` together, unless one alone has.
    """
    runs: list[slice] = []
    start = 0
    for index, size in enumerate(sizes):
        if index > start and (size > max(always, 2 * sizes[start]) or (index + 1 - start) * size > most):
            runs.append(slice(start, index))
            start = index
    return [*runs, slice(start, len(sizes))]
