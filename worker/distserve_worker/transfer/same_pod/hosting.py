"""The serving side inside a pod: hands its files to processes of the same user."""

import os
import secrets
import socket
import struct
from collections.abc import Sequence
from typing import Final

from distserve_worker.transfer.accepting import Accepting

GREETING: Final = b"DSKP\x00\x00\x00\x01"  # the last four bytes are the version
MOST_VISITORS: Final = 256
_BACKLOG: Final = 64
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group


class Hosting:
    """A unix socket without a file, which only processes of this network namespace (so of this pod) can reach."""

    def __init__(self, files: Sequence[int], most: int = MOST_VISITORS) -> None:
        """`files` are descriptors that every visitor gets; beside `most` of them one more is turned away."""
        self.name = f"distserve-kv-{secrets.token_hex(16)}"
        self._files = list(files)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(f"\0{self.name}")
        listener.listen(_BACKLOG)
        self._accepting = Accepting(listener, self._serve, most, "kv-host")

    def close(self) -> None:
        """End every visit."""
        self._accepting.close()

    def _serve(self, sock: socket.socket) -> None:
        if self._is_ours(sock):
            socket.send_fds(sock, [GREETING], self._files)
            sock.recv(1)  # nothing comes; a visitor sees by the connection that this process lives

    @staticmethod
    def _is_ours(sock: socket.socket) -> bool:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(credentials)[1] == os.getuid())
