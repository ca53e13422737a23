"""When a transfer has to end."""

import time

from distserve_worker.transfer.interface import Fault, TransferError


class Limit:
    """At its deadline, or when another thread sets `aborted`."""

    def __init__(self, deadline: float) -> None:
        """`deadline` in time.monotonic seconds."""
        self.deadline = deadline
        self.aborted = False

    def check(self) -> None:
        """Raises `TransferError` (ABORTED, STALLED)."""
        if self.aborted:
            raise TransferError(Fault.ABORTED, "ended by this side")
        if time.monotonic() > self.deadline:
            raise TransferError(Fault.STALLED, "too slow for the deadline of the transfer")
