"""Connections that stand between two transfers, so that the next one need not make its own."""

import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from distserve_worker.transfer.deadlines import READER_KEEPS_SECONDS
from distserve_worker.transfer.tcp.connection import is_silent

_MOST: Final = 64
_MOST_OF_ONE_PEER: Final = 8


@dataclass(frozen=True, slots=True)
class _Kept:
    endpoint: str
    sock: socket.socket
    end: float  # time.monotonic seconds


class KeptConnections:
    """A bounded number, each for a bounded time; every method may be called from any thread."""

    def __init__(self, seconds: float = READER_KEEPS_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: deque[_Kept] = deque()  # in order of their ends
        self._timer: threading.Timer | None = None
        self._closed = False

    def take(self, endpoint: str) -> socket.socket | None:
        """The connection to `endpoint` that was used last; those that the other side has let go of are closed."""
        while (sock := self._popped(endpoint)) is not None:
            if is_silent(sock):
                return sock
            sock.close()
        return None

    def put(self, endpoint: str, sock: socket.socket) -> None:
        """Take over a connection on which nothing is left to be said."""
        with self._lock:
            self._kept.append(_Kept(endpoint, sock, time.monotonic() + self._seconds))
            of_peer = [kept for kept in self._kept if kept.endpoint == endpoint]
            if self._closed or len(of_peer) > _MOST_OF_ONE_PEER:
                self._let_go(of_peer[0])
            elif len(self._kept) > _MOST:
                self._let_go(self._kept[0])
            self._watch()

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            self._closed = True
            for kept in tuple(self._kept):
                self._let_go(kept)
            if self._timer is not None:
                self._timer.cancel()

    def _popped(self, endpoint: str) -> socket.socket | None:
        with self._lock:
            for kept in reversed(self._kept):
                if kept.endpoint == endpoint:
                    self._kept.remove(kept)
                    return kept.sock
        return None

    def _let_go(self, kept: _Kept) -> None:
        self._kept.remove(kept)
        kept.sock.close()

    def _watch(self) -> None:
        """Have a timer as long as there is something to let go of."""
        if self._timer is None and self._kept:
            self._timer = threading.Timer(max(0.0, self._kept[0].end - time.monotonic()), self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        with self._lock:
            self._timer = None
            while self._kept and self._kept[0].end <= time.monotonic():
                self._let_go(self._kept[0])
            self._watch()
