"""The reading side inside a pod: gets the files of a serving process, and sees whether it lives."""

import os
import socket
import time
from typing import Final

from distserve_worker.transfer.same_pod.hosting import GREETING

_MAX_FILES: Final = 4


class Visit:
    """A connection to one serving process; `files` are this process's own descriptors of its files."""

    def __init__(self, name: str, deadline: float) -> None:
        """Connect by `deadline` (time.monotonic seconds). Raises OSError when it is not in this pod or not ours."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket.connect(f"\0{name}")
            greeting, self.files, _, _ = socket.recv_fds(self._socket, len(GREETING), _MAX_FILES)
            self._socket.setblocking(False)
            if greeting != GREETING:
                self.close_files()
                raise ConnectionError(f"{name} gives out no memory to this process")
        except OSError:
            self._socket.close()
            raise

    @property
    def is_over(self) -> bool:
        """Whether the other process is gone."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close_files(self) -> None:
        """Let go of the descriptors; what was mapped stays."""
        for file in self.files:
            os.close(file)
        self.files = []

    def close(self) -> None:
        """End the visit."""
        self._socket.close()
