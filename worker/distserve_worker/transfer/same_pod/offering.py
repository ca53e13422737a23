"""What the serving sides inside a pod do alike: tickets on a board, and files for those who visit."""

import threading
from collections.abc import Sequence
from functools import partial

from distserve_worker.transfer.interface import Ended, Source, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.board import Board
from distserve_worker.transfer.same_pod.hosting import Hosting
from distserve_worker.transfer.same_pod.location import Location
from distserve_worker.transfer.tickets import Tickets


class Offering:
    """Offers to readers that reach the memory by themselves; see `Serving` for the methods."""

    def __init__(self, files: Sequence[int], max_transfers: int, most_readers: int) -> None:
        """`files` are descriptors that readers get besides the board, which comes first."""
        self._tickets = Tickets(max_transfers)
        self._board = Board(max_transfers)
        self._lock = threading.RLock()
        self._hosting = Hosting([self._board.file, *files], most_readers)

    @property
    def socket(self) -> str:
        """Where readers find it."""
        return self._hosting.name

    def offer(self, selection: Selection, deadline: float, ended: Ended) -> Source:
        """See `Serving.offer`; the location of the source tells the slot on the board and the blocks."""
        slots: list[int] = []
        with self._lock:  # an offer that ends at once waits until it has its slot
            ticket = self._tickets.issue(selection, deadline, partial(self._over, slots, ended))
            try:
                slots.append(self._board.post(ticket, deadline))
            except TransferError:  # the slots of offers that are just ending are not free yet
                self._tickets.withdraw(ticket)
                raise
        location = Location(slots[0], selection.part, selection.blocks)
        return Source(self.socket, ticket, selection.nbytes, location.packed())

    def withdraw(self, ticket: bytes) -> None:
        """See `Serving.withdraw`."""
        self._tickets.withdraw(ticket)

    def close(self) -> None:
        """See `Serving.close`."""
        self._hosting.close()
        self._tickets.close()
        self._board.close()

    def _over(self, slots: list[int], ended: Ended, error: TransferError | None) -> None:
        with self._lock:
            if not slots:  # it was never made
                return
            taken = self._board.take_down(slots[0])
        ended(None if taken else error)
