"""Sending and receiving whole buffers on a socket, with a deadline on every wait and typed errors."""

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

from distserve_worker.transfer.deadlines import STALL_SECONDS, UNANSWERED_SECONDS
from distserve_worker.transfer.interface import Fault, TransferError

_BUFFERS_PER_CALL = 64  # far below IOV_MAX; one call sends some megabytes
_QUESTIONS = 4  # of the kernel, to a peer of whom nothing is heard


class Connection:
    """One use of a data connection; `abort` may come from another thread, everything else from one."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._deadline = deadline
        self._aborted = False
        self._released = False
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the socket, unless it was released."""
        if not self._released:
            self._socket.close()

    def release(self) -> socket.socket:
        """The socket, for another use, which `abort` does not reach any more. Raises `TransferError` (ABORTED)."""
        with self._lock:
            if self._aborted:
                raise TransferError(Fault.ABORTED, "ended by this side")
            self._released = True
        return self._socket

    def established(self) -> None:
        """Wait for a connection that was begun. Raises `TransferError`."""
        self._arm()
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        answered = poll.poll((self._socket.gettimeout() or 0) * 1000)
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self._aborted:
            raise TransferError(Fault.ABORTED, "ended by this side")
        if code or not answered:
            raise TransferError(Fault.UNREACHABLE, os.strerror(code) if code else "does not answer")

    def extend(self, deadline: float) -> None:
        """Replace the deadline (time.monotonic seconds)."""
        self._deadline = deadline

    def abort(self) -> None:
        """Wake the thread that uses the connection; its call raises ABORTED."""
        with self._lock:
            self._aborted = True
            if not self._released:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def check_open(self) -> None:
        """Raise `TransferError` when the other end has closed it, or this one was aborted."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        if self._aborted or poll.poll(0):
            raise self._closed("the peer closed the connection before the end")

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes. Raises `TransferError`."""
        data = bytearray(size)
        self.receive_into(memoryview(data))
        return bytes(data)

    def receive_into(self, buffer: memoryview) -> None:
        """Fill a flat byte buffer. Raises `TransferError`."""
        while buffer:
            self._arm()
            try:
                count = self._socket.recv_into(buffer)
            except OSError as error:
                raise self._translated(error) from error
            if count == 0:
                raise self._closed("the peer closed the connection before the end")
            buffer = buffer[count:]

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """All flat byte buffers in order, without copying them first. Raises `TransferError`."""
        left = deque(memoryview(buffer) for buffer in buffers)
        while left:
            self._arm()
            try:
                count = self._socket.sendmsg([left[i] for i in range(min(len(left), _BUFFERS_PER_CALL))])
            except OSError as error:
                raise self._translated(error) from error
            _drop(left, count)

    def _arm(self) -> None:
        if self._aborted:
            raise TransferError(Fault.ABORTED, "ended by this side")
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TransferError(Fault.STALLED, "too slow for the deadline of the transfer")
        self._socket.settimeout(min(STALL_SECONDS, remaining))

    def _translated(self, error: OSError) -> TransferError:
        if isinstance(error, TimeoutError) and not self._aborted:
            return TransferError(Fault.STALLED, "the peer made no progress")
        return self._closed(str(error))

    def _closed(self, text: str) -> TransferError:
        if self._aborted:
            return TransferError(Fault.ABORTED, "ended by this side")
        return TransferError(Fault.CLOSED, text)


def has_more(sock: socket.socket, seconds: float | None) -> bool:
    """Wait for bytes of the peer; False when it goes, or stays silent for `seconds`.

    Without `seconds` it may be silent for ever: see `watch_peer`.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    if not poll.poll(None if seconds is None else seconds * 1000):
        return False
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def watch_peer(sock: socket.socket) -> None:
    """Have whoever waits for the peer told within `UNANSWERED_SECONDS` when its machine is gone without a word."""
    each = int(UNANSWERED_SECONDS / (_QUESTIONS + 1))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, each)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, each)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _QUESTIONS)


def is_silent(sock: socket.socket) -> bool:
    """Whether the peer has neither said anything nor gone."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLRDHUP)
    return not poll.poll(0)


def _drop(buffers: deque[memoryview], count: int) -> None:
    """Remove the first `count` bytes."""
    while buffers and count >= len(buffers[0]):
        count -= len(buffers.popleft())
    if count:
        buffers[0] = buffers[0][count:]
