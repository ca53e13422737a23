"""Offers that readers in other processes see and take by themselves: a little shared memory.

A reader copies first and looks at the board afterwards: when the offer still stands, the blocks were its own until the
last byte was read, since a serving side takes an offer down before it lets the blocks go. Looking costs a
microsecond; asking the serving process would cost the time until it gets to answer, and waking it up costs as much as
copying some hundred kilobytes. So nothing is told: whoever released the handle lets the offer be withdrawn.
"""

import mmap
import os
import struct
import threading
import time
from typing import Final

from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.tickets import TICKET_BYTES

_NOBODY: Final = bytes(TICKET_BYTES)
_DEADLINE: Final = struct.Struct("d")
_TAKEN_AT: Final = TICKET_BYTES
_DEADLINE_AT: Final = 2 * TICKET_BYTES
_SLOT_BYTES: Final = 128  # ticket that stands, ticket that was taken last, deadline (time.monotonic seconds)


class Board:
    """The serving side's end; every method may be called from any thread."""

    def __init__(self, slots: int) -> None:
        self.file = os.memfd_create("distserve-kv-offers", os.MFD_CLOEXEC)
        os.ftruncate(self.file, slots * _SLOT_BYTES)
        self._memory = mmap.mmap(self.file, 0)
        self._free = list(range(slots))
        self._lock = threading.Lock()

    def post(self, ticket: bytes, deadline: float) -> int:
        """Put an offer up; its slot. Raises `TransferError` (BUSY)."""
        with self._lock:
            if not self._free:
                raise TransferError(Fault.BUSY, "the board of offers is full")
            slot = self._free.pop()
        start = slot * _SLOT_BYTES
        _DEADLINE.pack_into(self._memory, start + _DEADLINE_AT, deadline)
        self._memory[start : start + TICKET_BYTES] = ticket
        return slot

    def take_down(self, slot: int) -> bool:
        """From here on nothing that is read counts; whether a reader had taken it before."""
        start = slot * _SLOT_BYTES
        ticket = self._memory[start : start + TICKET_BYTES]
        self._memory[start : start + TICKET_BYTES] = _NOBODY
        taken = self._memory[start + _TAKEN_AT : start + _TAKEN_AT + TICKET_BYTES] == ticket
        with self._lock:
            self._free.append(slot)
        return taken

    def close(self) -> None:
        """Nobody maps it any more from here; those who have keep it."""
        os.close(self.file)


class BoardView:
    """A reader's end."""

    def __init__(self, file: int) -> None:
        """Maps the file, which can be closed then. Raises OSError, ValueError."""
        self._memory = mmap.mmap(file, 0)
        self._slots = len(self._memory) // _SLOT_BYTES

    def stands(self, slot: int, ticket: bytes) -> bool:
        """Whether the offer is up, in time, and was not taken."""
        if slot >= self._slots:
            return False
        start = slot * _SLOT_BYTES
        current, taken = (self._memory[at : at + TICKET_BYTES] for at in (start, start + _TAKEN_AT))
        (deadline,) = _DEADLINE.unpack_from(self._memory, start + _DEADLINE_AT)
        return current == ticket and taken != ticket and time.monotonic() < deadline

    def take(self, slot: int, ticket: bytes) -> bool:
        """The offer is used up; whether it stood until now."""
        if not self.stands(slot, ticket):
            return False
        # Besides the ticket, not over it: the slot may be somebody else's by now.
        start = slot * _SLOT_BYTES + _TAKEN_AT
        self._memory[start : start + TICKET_BYTES] = ticket
        return True
