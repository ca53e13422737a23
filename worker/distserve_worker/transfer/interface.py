"""What every transport of KV blocks looks like from outside, and the ways in which a transfer can go wrong.

The serving side offers part of its pinned blocks under a ticket, the pulling side shows the ticket and fills the same
part of its own blocks. Who may pull what, leases and handles are not known here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from distserve_worker.transfer.memory.selection import Selection


class Fault(StrEnum):
    """Why a transfer ended without its data."""

    REFUSED = "refused"  # wrong, used or expired ticket
    BUSY = "busy"  # too many at once; the same pull can succeed later
    UNREACHABLE = "unreachable"
    STALLED = "stalled"  # no progress, or too slow for its deadline
    CLOSED = "closed"  # the peer went away in the middle
    MISMATCH = "mismatch"  # the ends disagree on the protocol or on the size
    ABORTED = "aborted"  # by our own side


class TransferError(Exception):
    """A transfer that did not complete; the target memory then holds nothing usable."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(f"{fault}: {text}")
        self.fault = fault


Ended = Callable[[TransferError | None], None]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the pulling side finds what was offered to it."""

    endpoint: str
    ticket: bytes
    nbytes: int
    location: bytes = b""  # the transport's own: which memory it is, where the reader reaches it by itself


class Serving(Protocol):
    """The side that has the blocks; every method may be called from any thread."""

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        ...

    @property
    def probe(self) -> bytes:
        """What a reader needs for finding out whether it can use this way; constant."""
        ...

    def offer(self, selection: Selection, deadline: float, ended: Ended) -> Source:
        """Let one reader have `selection` until `deadline` (time.monotonic seconds).

        `ended` is called exactly once, from any thread, when whatever is read of the memory afterwards counts for
        nothing: at once when the transport sees a transfer end, otherwise when the offer is withdrawn, which it has to
        be at its deadline. Its error is None when a reader got everything. Raises `TransferError` (BUSY).
        """
        ...

    def withdraw(self, ticket: bytes) -> None:
        """End an offer now, a running transfer included; unknown tickets are ignored."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


class Transfer(Protocol):
    """One pull."""

    def run(self) -> None:
        """Fill the target memory, blocking. Raises `TransferError`; nothing writes to the memory after it returned."""
        ...

    def abort(self) -> None:
        """Make `run` raise soon; from any thread, at any time. Raises nothing itself."""
        ...


class Pulling(Protocol):
    """The side that needs the blocks; every method may be called from any thread."""

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        ...

    def try_(self, probe: bytes, deadline: float) -> bool:
        """Whether this way to the peer that made `probe` works, found out by trying; blocking, until `deadline`.

        Raises `TransferError` instead of saying no where more is known than that it does not.
        """
        ...

    def begin(self, source: Source, selection: Selection, deadline: float) -> Transfer:
        """Prepare a pull into `selection` that ends by `deadline` (time.monotonic seconds)."""
        ...

    def close(self) -> None:
        """Let go of every peer; no transfer runs any more."""
        ...
