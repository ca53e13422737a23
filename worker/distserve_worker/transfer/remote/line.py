"""Questions to the process of a rank, and its answers, over one pipe: many at once, each with a deadline."""

import itertools
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Final

from distserve_worker.transfer.agent import Choice, Way
from distserve_worker.transfer.interface import Ended, Fault, Source, TransferError
from distserve_worker.transfer.remote import messages
from distserve_worker.transfer.remote.messages import Answer, Failure, Hello, Request
from distserve_worker.transfer.remote.sending import Sender

_HELLO_SECONDS: Final = 30.0
_GONE: Final = Failure(Fault.CLOSED, "the process of the rank is gone")


class Call:
    """A question that waits for its answer."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._answered = threading.Event()
        self._result: Source | Choice | Failure | None = None

    def settle(self, result: Source | Choice | Failure | None) -> None:
        """The answer is there."""
        self._result = result
        self._answered.set()

    def is_settled_in(self, seconds: float) -> bool:
        """Wait for so long at most."""
        return self._answered.wait(seconds)

    def wait(self, seconds: float) -> Source | Choice | None:
        """The answer. Raises `TransferError`, also when it does not come in time."""
        if not self.is_settled_in(seconds):
            raise TransferError(Fault.STALLED, f"the process of the rank did not answer for {seconds:.0f} s")
        if isinstance(self._result, Failure):
            raise self._result.error()
        return self._result


class Line:
    """When the process of the rank ends, so does every call and every offer; any thread may use it."""

    def __init__(self, connection: Connection) -> None:
        """Takes over its end of the pipe. Raises `TransferError` when the rank does not say what it has."""
        self._connection = connection
        self.ways = self._introduced()
        self._sender = Sender(connection, "kv-rank-requests")
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._gone = False
        self._calls: dict[int, Call] = {}
        self._offers: dict[int, Ended] = {}
        threading.Thread(target=self._read, name="kv-rank-answers", daemon=True).start()

    def ask(self, request: Callable[[int], Request], ended: Ended | None = None) -> Call:
        """Begin a call; `forget` must follow. Raises `TransferError`.

        `request` makes the message from the call's number. When it is an offer, `ended` gets its end.
        """
        with self._lock:
            if self._gone:
                raise _GONE.error()
            call = Call(next(self._numbers))
            self._calls[call.number] = call
            if ended is not None:
                self._offers[call.number] = ended
        self._sender.put(request(call.number))
        return call

    def tell(self, request: Request) -> None:
        """Send what is not answered; a rank that is gone need not know."""
        if not self._gone:
            self._sender.put(request)

    def forget(self, call: Call, *, offered: bool = False) -> None:
        """A call is over; `offered`: its offer goes on."""
        with self._lock:
            self._calls.pop(call.number, None)
            if not offered:
                self._offers.pop(call.number, None)

    def close(self) -> None:
        """Hang up: the rank ends what it has, and so do all calls."""
        self._sender.close()

    def _introduced(self) -> tuple[Way, ...]:
        if not self._connection.poll(_HELLO_SECONDS):
            raise TransferError(Fault.STALLED, f"the rank said nothing for {_HELLO_SECONDS:.0f} s")
        try:
            hello = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _GONE.error() from error
        assert isinstance(hello, Hello), f"a rank began with {hello}"
        return hello.ways

    def _read(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, OSError):
            self._end()
        finally:
            self._connection.close()

    def _take(self, reply: messages.Reply) -> None:
        with self._lock:
            call = self._calls.get(reply.call) if isinstance(reply, Answer) else None
            ended = self._offers.pop(reply.call, None) if isinstance(reply, messages.Ended) else None
        if isinstance(reply, Answer) and call is not None:
            call.settle(reply.result)
        if isinstance(reply, messages.Ended) and ended is not None:
            ended(None if reply.error is None else reply.error.error())

    def _end(self) -> None:
        with self._lock:
            self._gone = True
            calls, offers = tuple(self._calls.values()), tuple(self._offers.values())
            self._offers.clear()
        for call in calls:
            call.settle(_GONE)
        for ended in offers:
            ended(_GONE.error())
