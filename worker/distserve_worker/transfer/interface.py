"""What every transport of KV blocks looks like from outside, and the ways in which a transfer can go wrong.

The serving side offers pinned memory under a ticket, the pulling side shows the ticket and fills its own memory. Who
may pull what, leases and handles are not known here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from distserve_worker.engine.interface import KvBlocks


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


class Serving(Protocol):
    """The side that has the blocks."""

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        ...

    def offer(self, memory: KvBlocks, deadline: float, ended: Ended) -> Source:
        """Let one reader have `memory` until `deadline` (time.monotonic seconds).

        `ended` is called exactly once, from any thread, when nothing reads the memory any more. Raises `TransferError`
        (BUSY).
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
        """Make `run` raise soon; from any thread, at any time."""
        ...


class Pulling(Protocol):
    """The side that needs the blocks."""

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        ...

    def begin(self, source: Source, target: KvBlocks, deadline: float) -> Transfer:
        """Prepare a pull into `target` that ends by `deadline` (time.monotonic seconds)."""
        ...
