"""Writing to a pipe without waiting for whoever reads it.

Each side answers the other, or waits for an answer until a deadline. So whoever leaves very many messages unread has
been stuck for minutes, and all that it was told before is late: then the pipe is cut, which ends all on both sides.
Losing a single message instead would keep memory pinned for good.
"""

import contextlib
import logging
import os
import queue
import socket
import threading
from multiprocessing.connection import Connection
from typing import Final

from distserve_worker.transfer.remote.messages import Reply, Request

log = logging.getLogger(__name__)

_MAX_UNSENT: Final = 4096


class Sender:
    """A thread that sends; `put` may be called from any other."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._queue: queue.Queue[Request | Reply | None] = queue.Queue(_MAX_UNSENT)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, message: Request | Reply) -> None:
        """Send it soon, or cut the pipe."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            log.error("the other process left %d messages unread: it is cut off", _MAX_UNSENT)
            self._hang_up()

    def close(self) -> None:
        """Send what is there, then hang up; both sides' readers see the end of the pipe."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._hang_up()

    def _run(self) -> None:
        try:
            while (message := self._queue.get()) is not None:
                self._connection.send(message)
        except OSError:
            pass  # whoever reads from the pipe notices it too
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """Closing would neither wake a thread that reads from it nor, before that, be seen on the other side."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
