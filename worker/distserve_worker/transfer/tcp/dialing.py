"""Connecting to an endpoint of several addresses, in a way that another thread can cut short."""

import errno
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

from distserve_proto.addresses import parse_address
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.tcp.connection import Connection

_Address = tuple[int, int, int, str, Any]  # as getaddrinfo tells it


class Dialing:
    """A connection to be made or taken up; `abort` may come from another thread, before, during or after it."""

    def __init__(self, endpoint: str, deadline: float) -> None:
        """`endpoint` as host:port; `deadline` in time.monotonic seconds, for the connection's whole life."""
        self._endpoint = endpoint
        self._deadline = deadline
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._aborted = False

    def abort(self) -> None:
        """Cut it."""
        with self._lock:
            self._aborted = True
            if self._connection is not None:
                self._connection.abort()

    def resume(self, sock: socket.socket) -> Connection:
        """Over one that was made before."""
        return self._known(Connection(sock, self._deadline))

    def connect(self) -> Connection:
        """To the first address that answers. Raises `TransferError`."""
        unreachable = TransferError(Fault.UNREACHABLE, f"{self._endpoint}: has no address")
        for address in self._addresses():
            try:
                return self._connect_to(address)
            except TransferError as error:
                if error.fault is not Fault.UNREACHABLE:
                    raise
                unreachable = error
        raise unreachable

    def _connect_to(self, address: _Address) -> Connection:
        connection = self._known(Connection(self._begun(address), self._deadline))
        try:
            connection.established()
        except TransferError as error:
            connection.close()
            raise TransferError(error.fault, f"{self._endpoint}: {error}") from error
        return connection

    def _known(self, connection: Connection) -> Connection:
        with self._lock:
            self._connection = connection
            if self._aborted:
                connection.abort()
        return connection

    def _begun(self, address: _Address) -> socket.socket:
        """A socket that is on its way, so that `abort` finds something to shut down."""
        family, kind, protocol, _, target = address
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        code = sock.connect_ex(target)
        if code not in {0, errno.EINPROGRESS}:
            sock.close()
            raise TransferError(Fault.UNREACHABLE, f"{self._endpoint}: {os.strerror(code)}")
        return sock

    def _addresses(self) -> Sequence[_Address]:
        try:
            address = parse_address(self._endpoint)
            return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise TransferError(Fault.UNREACHABLE, f"{self._endpoint}: {error}") from error
