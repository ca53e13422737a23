"""One pull as its prefill worker sees it: the pieces that are offered to one reader, until the last of them is over."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from distserve_worker.transfer.agent import Agent, Share
from distserve_worker.transfer.interface import Ended, Source, TransferError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One piece that a reader wants, and who has it."""

    agent: Agent
    transport: str
    share: Share


@dataclass(slots=True, eq=False)
class _Reading:
    """One piece on its way."""

    wanted: Wanted
    ticket: bytes | None = None

    def offer(self, seconds: float, ended: Ended) -> Source:
        """Raises `TransferError`."""
        source = self.wanted.agent.offer(self.wanted.transport, self.wanted.share, seconds, ended)
        self.ticket = source.ticket
        return source

    def withdraw(self) -> None:
        """End it, when it was offered; `ended` tells when that is done."""
        if self.ticket is not None:
            self.wanted.agent.withdraw(self.wanted.transport, self.ticket)


class Reader:
    """Used on the event loop only."""

    def __init__(self, request_id: str, pieces: Sequence[Wanted], done: Callable[["Reader"], None]) -> None:
        """`done` is called once, when nothing of it is read any more."""
        self._request_id = request_id
        self._pieces = tuple(_Reading(wanted) for wanted in pieces)
        self._running = set(self._pieces)
        self._done = done
        self._timer: asyncio.TimerHandle | None = None
        self._withdrawn = False

    async def offer(self, seconds: float) -> list[Source]:
        """Where to find each piece, for so long. Raises `TransferError`; then nothing is offered any more, or soon."""
        # Shielded: a reader that hangs up leaves offers behind, which end at their deadline.
        return await asyncio.shield(asyncio.create_task(self._offer(seconds)))

    def withdraw(self) -> None:
        """Cut every transfer and take every ticket back."""
        self._withdrawn = True
        for reading in tuple(self._running):
            reading.withdraw()

    async def _offer(self, seconds: float) -> list[Source]:
        loop = asyncio.get_running_loop()

        def ended(reading: _Reading, error: TransferError | None) -> None:
            loop.call_soon_threadsafe(self._ended, reading, error)

        def offer_all() -> list[Source]:
            return [reading.offer(seconds, partial(ended, reading)) for reading in self._pieces]

        try:
            sources = await asyncio.to_thread(offer_all)  # the rank may be another process
        except TransferError as error:
            self._give_up(error)
            raise
        if self._running:
            self._timer = loop.call_later(seconds, self.withdraw)
        if self._withdrawn:  # meanwhile, when there were no tickets to take back
            self.withdraw()
        return sources

    def _give_up(self, error: TransferError) -> None:
        """Take back what was offered before something could not be."""
        self.withdraw()
        for reading in self._pieces:
            if reading.ticket is None:
                self._ended(reading, error)

    def _ended(self, reading: _Reading, error: TransferError | None) -> None:
        if error is not None:
            log.info("a pull of %s ended: %s", self._request_id, error)
        self._running.discard(reading)
        if self._running:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._done(self)
