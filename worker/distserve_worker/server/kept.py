"""A parked KV and those who read it: its memory is let go after the last of them."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from distserve_proto import kv_pb2
from distserve_worker.server.arrivals import Exported
from distserve_worker.transfer.deadlines import transfer_seconds
from distserve_worker.transfer.interface import Serving, TransferError

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Reading:
    """One offer to one reader."""

    serving: Serving
    ticket: bytes | None = None
    timer: asyncio.TimerHandle | None = None


class Kept:
    """Used on the event loop only."""

    def __init__(self, exported: Exported, unread: Callable[[], None]) -> None:
        """`unread` is called each time the last reader is done."""
        self.parked = exported.parked
        self._memory = exported.memory
        self._unread = unread
        self._readings: set[_Reading] = set()

    @property
    def is_read(self) -> bool:
        """Whether somebody reads the memory, or holds a ticket for it."""
        return bool(self._readings)

    def offer(self, serving: Serving) -> kv_pb2.PullResponse:
        """Let one reader have it, for as long as a slow transfer takes. Raises `TransferError`."""
        reading = _Reading(serving)
        loop = asyncio.get_running_loop()

        def ended(error: TransferError | None) -> None:
            loop.call_soon_threadsafe(self._ended, reading, error)

        seconds = transfer_seconds(self._memory.nbytes)
        source = serving.offer(self._memory, time.monotonic() + seconds, ended)
        reading.ticket = source.ticket
        reading.timer = loop.call_later(seconds, serving.withdraw, source.ticket)
        self._readings.add(reading)
        return kv_pb2.PullResponse(
            transport=serving.name, endpoint=source.endpoint, ticket=source.ticket, bytes=self._memory.nbytes
        )

    def interrupt(self) -> None:
        """Cut every transfer and take every ticket back."""
        for reading in tuple(self._readings):
            if reading.ticket is not None:
                reading.serving.withdraw(reading.ticket)

    def _ended(self, reading: _Reading, error: TransferError | None) -> None:
        if error is not None:
            log.info("a pull of %s ended: %s", self.parked.request_id, error)
        if reading.timer is not None:
            reading.timer.cancel()
        self._readings.discard(reading)
        if not self._readings:
            self._unread()
