"""Cuts clients that send their request too slowly or stop reading their response."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from distserve_worker.gateway.errors import invalid

# Little is kept for a client that does not read; what the kernel keeps is bounded on the listening socket.
WRITE_BUFFER_BYTES = 16 * 1024
KEEP_ALIVE_PROBE_SECONDS = 15
# What a client may send ahead of the answer to its request, such as further requests.
AHEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may let the gateway wait."""

    header_seconds: float  # for the head of a request, once it has begun
    write_seconds: float  # for room in the buffers of a connection


class PatientConfig(uvicorn.Config):
    """Uvicorn's configuration with the patience of its connections."""

    patience: Patience


class PatientProtocol(H11Protocol):
    """One connection. A cut connection looks to the application like a client that left."""

    _head: "_Countdown"
    _write: "_Countdown"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Bound what the connection can hold, and await the first request."""
        super().connection_made(transport)
        assert isinstance(self.config, PatientConfig), "the protocol is only used with its own configuration"
        patience = self.config.patience
        self._head = _Countdown(self.loop, patience.header_seconds, transport.abort)
        self._write = _Countdown(self.loop, patience.write_seconds, self._cut_unless_read)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        _watch_peer(transport.get_extra_info("socket"), patience.write_seconds)
        self._head.start()

    def data_received(self, data: bytes) -> None:
        """Take data of a request; a head that has begun must end in time."""
        if self.conn.their_state is h11.MUST_CLOSE:
            self.conn.receive_data(data)  # it can be no request any more, and is no reason to end the one before it
            self._bound_what_is_ahead()
        else:
            super().data_received(data)
        if self._answering:
            self._head.stop()
        elif not self.transport.is_closing():
            self._head.start()

    def handle_events(self) -> None:
        """Take requests, and read on while one is answered: else nobody would notice that its client leaves.

        Uvicorn stops reading when more comes than the request that it answers.
        """
        super().handle_events()
        if self._answering and not self.cycle.more_body:
            self.flow.resume_reading()
            self._bound_what_is_ahead()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._head.stop()
        self._write.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read: from now on it has the time of a write."""
        super().pause_writing()
        self._await_room()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._write.stop()

    def on_response_complete(self) -> None:
        """What is buffered of a complete response must be read in time, a next head that has begun must end in time."""
        super().on_response_complete()
        self._await_room()
        if not self._answering and self.conn.trailing_data[0]:
            self._head.start()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the form of all other errors."""
        body = json.dumps(invalid(msg, code="invalid_http").problem.body).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _bound_what_is_ahead(self) -> None:
        if len(self.conn.trailing_data[0]) > AHEAD_BYTES:
            self.transport.abort()

    def _await_room(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self._write.start()

    def _cut_unless_read(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()


class _Countdown:
    """Calls back once, `seconds` after its start, unless stopped; starting it again while it runs changes nothing."""

    __slots__ = ("_callback", "_loop", "_seconds", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._callback()


def _watch_peer(connection: socket.socket, seconds: float) -> None:
    """Let the kernel notice peers that vanished without a word, with and without data on the way."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
