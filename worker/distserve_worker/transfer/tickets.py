"""Tickets for offered memory: random, shown once, expiring, and bounded in number."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from distserve_worker.transfer.interface import Ended, Fault, TransferError
from distserve_worker.transfer.memory.selection import Selection

TICKET_BYTES = 32


@dataclass(slots=True)
class Grant:
    """What a ticket stands for; `abort` exists while a transfer runs."""

    selection: Selection
    deadline: float
    ended: Ended
    abort: Callable[[], None] | None = None


class Tickets:
    """The offers of one serving side; every method may be called from any thread."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._grants: dict[bytes, Grant] = {}

    def issue(self, selection: Selection, deadline: float, ended: Ended) -> bytes:
        """A fresh ticket. Raises `TransferError` (BUSY) at the limit."""
        self.expire()
        ticket = secrets.token_bytes(TICKET_BYTES)
        with self._lock:
            if len(self._grants) >= self._limit:
                raise TransferError(Fault.BUSY, f"{self._limit} transfers are offered or running already")
            self._grants[ticket] = Grant(selection, deadline, ended)
        return ticket

    def redeem(self, ticket: bytes, abort: Callable[[], None]) -> Grant:
        """Begin the one transfer of a ticket; `finish` must follow. Raises `TransferError` (REFUSED)."""
        self.expire()
        with self._lock:
            grant = self._grants.get(ticket)
            if grant is None or grant.abort is not None:
                raise TransferError(Fault.REFUSED, "the ticket is unknown, was used or has expired")
            grant.abort = abort
        return grant

    def finish(self, ticket: bytes, error: TransferError | None) -> None:
        """The transfer of a redeemed ticket is over."""
        with self._lock:
            grant = self._grants.pop(ticket)
        grant.ended(error)

    def withdraw(self, ticket: bytes) -> None:
        """End an offer that was not redeemed; abort its transfer if it was."""
        with self._lock:
            grant = self._grants.get(ticket)
            if grant is None:
                return
            if grant.abort is None:
                del self._grants[ticket]
        if grant.abort is not None:
            grant.abort()
            return
        grant.ended(TransferError(Fault.ABORTED, "the offer was withdrawn"))

    def expire(self) -> None:
        """End every offer that was not redeemed before its deadline; a running transfer watches its own."""
        now = self._clock()
        with self._lock:
            late = [ticket for ticket, grant in self._grants.items() if grant.abort is None and grant.deadline <= now]
            grants = [self._grants.pop(ticket) for ticket in late]
        for grant in grants:
            grant.ended(TransferError(Fault.STALLED, "nobody showed the ticket in time"))

    def close(self) -> None:
        """End everything."""
        with self._lock:
            tickets = tuple(self._grants)
        for ticket in tickets:
            self.withdraw(ticket)
