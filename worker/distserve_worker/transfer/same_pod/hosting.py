"""The serving side inside a pod: hands its files to processes of the same user."""

import contextlib
import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Final

log = logging.getLogger(__name__)

GREETING: Final = b"DSKP\x00\x00\x00\x01"  # the last four bytes are the version
_MAX_VISITORS: Final = 256
_BACKLOG: Final = 64
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group


class Hosting:
    """A unix socket without a file, which only processes of this network namespace (so of this pod) can reach."""

    def __init__(self, files: Sequence[int]) -> None:
        """`files` are descriptors that every visitor gets."""
        self.name = f"distserve-kv-{secrets.token_hex(16)}"
        self._files = list(files)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(_BACKLOG)
        self._slots = threading.BoundedSemaphore(_MAX_VISITORS)
        self._visitors: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, name="kv-host", daemon=True).start()

    def close(self) -> None:
        """End every visit."""
        with self._lock:
            self._closed = True
            for sock in (self._listener, *self._visitors):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                sock.close()  # that reader takes another transport
                continue
            threading.Thread(target=self._serve, args=(sock,), name="kv-visitor", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            with self._lock:
                if not self._closed:
                    self._visitors.add(sock)
            try:
                if self._is_ours(sock) and not self._closed:
                    socket.send_fds(sock, [GREETING], self._files)
                    sock.recv(1)  # nothing comes; a visitor sees by the connection that this process lives
            except OSError as error:
                log.info("a reader in this pod: %s", error)
            finally:
                with self._lock:
                    self._visitors.discard(sock)
                self._slots.release()

    @staticmethod
    def _is_ours(sock: socket.socket) -> bool:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(credentials)[1] == os.getuid())
