"""The running requests of a lane in the order in which they are computed, and what is new in their block tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from distserve_worker.engine.execution.batch import Running, Written
from distserve_worker.engine.interface import BlockRef
from distserve_worker.engine.request import Request
from distserve_worker.engine.scheduling.blocks import BlockManager


@dataclass(slots=True, eq=False)
class _Seat:
    """A request's place in the tables of every rank, and the blocks that stand there."""

    number: int
    written: tuple[BlockRef, ...] = ()


class Lane:
    """Shortest first: an order that mostly holds while the members stay, since all of them grow by one token.

    Not when one of them has been away meanwhile: put back, and computed again.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._running: Sequence[Request] = ()
        self._seats: dict[Request, _Seat] = {}
        self._free: list[int] = []
        self.members: tuple[Request, ...] = ()

    def arranged(self, running: Sequence[Request], blocks: BlockManager) -> Running:
        """One token for each of them."""
        if running != self._running:
            self._running = running
            self._reseat(running)
            self.members = tuple(sorted(running, key=_length))
        elif any(_length(one) > _length(other) for one, other in pairwise(self.members)):
            self.members = tuple(sorted(running, key=_length))
        return Running(
            lane=self._number,
            seats=tuple(self._seats[request].number for request in self.members),
            written=tuple(self._written(blocks)),
            tokens=tuple(request.tokens[-1] for request in self.members),
            positions=tuple(len(request.tokens) - 1 for request in self.members),
        )

    def _reseat(self, running: Sequence[Request]) -> None:
        staying = set(running)
        for request in [request for request in self._seats if request not in staying]:
            self._free.append(self._seats.pop(request).number)
        for request in running:
            if request not in self._seats:
                number = self._free.pop() if self._free else len(self._seats)
                self._seats[request] = _Seat(number)

    def _written(self, blocks: BlockManager) -> Iterator[Written]:
        for request in self.members:
            seat, held = self._seats[request], blocks.blocks_of(request.request_id)
            if held is seat.written or held == seat.written:
                continue
            known = len(seat.written)
            first = known if held[:known] == seat.written else 0
            yield Written(seat.number, first, tuple(block.index for block in held[first:]))
            seat.written = held


def _length(request: Request) -> int:
    return len(request.tokens)
