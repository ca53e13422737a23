"""Waits for the end of an offer."""

import threading
from dataclasses import dataclass, field

from distserve_worker.transfer.interface import TransferError


@dataclass(slots=True)
class Ending:
    """Waits for the one call of `ended`."""

    calls: list[TransferError | None] = field(default_factory=list)
    _called: threading.Event = field(default_factory=threading.Event)

    def __call__(self, error: TransferError | None) -> None:
        self.calls.append(error)
        self._called.set()

    def wait(self) -> TransferError | None:
        assert self._called.wait(20), "the serving side never said that the transfer ended"
        assert len(self.calls) == 1
        return self.calls[0]
