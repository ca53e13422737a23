"""Serves the connections to a listening socket: each in a thread of its own, a bounded number of them, until closed."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

from distserve_worker.transfer.interface import TransferError

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.1  # what was missing, such as descriptors, is there again when others have ended


class Accepting:
    """Nothing but `close` ends it: whatever keeps one connection from being taken or served harms no later one."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[socket.socket], None],
        most: int,
        name: str,
        patience: float = 0.0,
    ) -> None:
        """Take over a listening socket and begin.

        `serve` gets each connection, which is closed when it returns or raises OSError or `TransferError`. Beside
        `most` that are served one more waits, for `patience` seconds, and is closed when there is no room then.
        """
        self._listener = listener
        self._serve = serve
        self._name = name
        self._patience = patience
        self._slots = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name=f"{name}-listener", daemon=True).start()

    def close(self) -> None:
        """Stop listening and end every connection."""
        with self._lock:
            self._closed.set()
            for sock in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # wakes who waits for it, which closing does not
        self._listener.close()

    def _accept(self) -> None:
        failing = False
        while not self._closed.is_set():
            try:
                self._begin(self._listener.accept()[0])
                failing = False
            except (OSError, RuntimeError) as error:
                if not failing and not self._closed.is_set():
                    log.warning("%s takes no connections for now: %s", self._name, error)
                failing = True
                self._closed.wait(_PAUSE_SECONDS)

    def _begin(self, sock: socket.socket) -> None:
        """Raises RuntimeError when there can be no more threads."""
        if not self._slots.acquire(timeout=self._patience):
            sock.close()
            return
        try:
            threading.Thread(target=self._run, args=(sock,), name=self._name, daemon=True).start()
        except RuntimeError:
            self._slots.release()
            sock.close()
            raise

    def _run(self, sock: socket.socket) -> None:
        try:
            with sock, self._known(sock):
                self._serve(sock)
        except (OSError, TransferError) as error:
            log.info("%s: %s", self._name, error)
        finally:
            self._slots.release()

    @contextlib.contextmanager
    def _known(self, sock: socket.socket) -> Iterator[None]:
        """While it runs, `close` ends the connection; when that has been before, it is over at once."""
        with self._lock:
            if self._closed.is_set():
                raise ConnectionAbortedError("closed meanwhile")
            self._sockets.add(sock)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(sock)
