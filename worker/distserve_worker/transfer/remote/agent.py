"""The driver's side: an `Agent` whose ends live in the process of a rank."""

import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, cast

from distserve_worker.transfer.agent import Choice, Share, Way
from distserve_worker.transfer.interface import Ended, Fault, Source, TransferError
from distserve_worker.transfer.remote.line import Line
from distserve_worker.transfer.remote.messages import Abort, Choose, Offer, Pull, Withdraw

_ANSWER_SECONDS: Final = 5.0  # of a rank that only has to look something up, or on top of what a call may take


class RemoteAgent:
    """See `Agent`. When the process of the rank ends, so does every call and every offer."""

    def __init__(self, connection: Connection) -> None:
        """Takes over its end of the pipe. Raises `TransferError` when the rank does not say what it has."""
        self._line = Line(connection)

    @property
    def ways(self) -> tuple[Way, ...]:
        """See `Agent.ways`."""
        return self._line.ways

    def offer(self, transport: str, share: Share, seconds: float, ended: Ended) -> Source:
        """See `Agent.offer`."""
        call = self._line.ask(lambda number: Offer(number, transport, share, seconds), ended)
        offered = False
        try:
            source = cast("Source", call.wait(_ANSWER_SECONDS))
            offered = True
        finally:
            self._line.forget(call, offered=offered)
        return source

    def withdraw(self, transport: str, ticket: bytes) -> None:
        """See `Agent.withdraw`."""
        self._line.tell(Withdraw(transport, ticket))

    def choose(self, ways: Sequence[Way], seconds: float) -> Choice:
        """See `Agent.choose`."""
        call = self._line.ask(lambda number: Choose(number, tuple(ways), seconds))
        try:
            return cast("Choice", call.wait(seconds * len(ways) + _ANSWER_SECONDS))
        finally:
            self._line.forget(call)

    def begin(self, transport: str, source: Source, share: Share, seconds: float) -> "RemoteTransfer":
        """See `Agent.begin`; what the rank refuses comes with `run`."""
        pull = partial(Pull, transport=transport, source=source, share=share)
        return RemoteTransfer(self._line, pull, time.monotonic() + seconds)

    def close(self) -> None:
        """See `Agent.close`; the rank does so when it finds the pipe closed."""
        self._line.close()


class RemoteTransfer:
    """A pull by the rank; see `Transfer`."""

    def __init__(self, line: Line, pull: "partial[Pull]", deadline: float) -> None:
        self._line = line
        self._pull = pull
        self._deadline = deadline
        self._number: int | None = None
        self._aborted = False

    def abort(self) -> None:
        """See `Transfer.abort`."""
        self._aborted = True
        if self._number is not None:
            self._line.tell(Abort(self._number))

    def run(self) -> None:
        """See `Transfer.run`."""
        seconds = self._deadline - time.monotonic()
        call = self._line.ask(lambda number: self._pull(number, seconds=seconds))
        self._number = call.number
        try:
            if self._aborted:
                self._line.tell(Abort(call.number))
            if not call.is_settled_in(seconds + _ANSWER_SECONDS):
                # Until it answers it may write; a rank that does not is cut off, which ends all that it has.
                self._line.close()
                raise TransferError(Fault.STALLED, "the process of the rank did not end a transfer at its deadline")
            call.wait(0)
        finally:
            self._line.forget(call)
