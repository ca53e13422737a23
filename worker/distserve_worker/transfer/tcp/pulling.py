"""The pulling side of the tcp transport."""

import errno
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

from distserve_proto.addresses import parse_address
from distserve_worker.engine.interface import KvBlocks
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.tcp.connection import Connection
from distserve_worker.transfer.tcp.framing import (
    HEADER_BYTES,
    NAME,
    TRAILER,
    Header,
    Status,
    pack_hello,
    unpack_header,
)

_Address = tuple[int, int, int, str, Any]  # as getaddrinfo tells it


class TcpPulling:
    """Pulls over one fresh connection per transfer."""

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    def begin(self, source: Source, target: KvBlocks, deadline: float) -> "TcpTransfer":
        """See `Pulling.begin`."""
        return TcpTransfer(source, target, deadline)


class TcpTransfer:
    """One pull; see `Transfer`."""

    def __init__(self, source: Source, target: KvBlocks, deadline: float) -> None:
        self._source = source
        self._target = target
        self._deadline = deadline
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._aborted = False

    def abort(self) -> None:
        """See `Transfer.abort`."""
        with self._lock:
            self._aborted = True
            if self._connection is not None:
                self._connection.abort()

    def run(self) -> None:
        """See `Transfer.run`."""
        with self._connect() as connection:
            connection.send([pack_hello(self._source.ticket)])
            self._check(_header(connection))
            for buffer in self._target.buffers:
                connection.receive_into(buffer.cast("B"))
            if connection.receive(len(TRAILER)) != TRAILER:
                raise TransferError(Fault.MISMATCH, "no trailer after the last block")

    def _connect(self) -> Connection:
        """To the first address that answers."""
        unreachable = TransferError(Fault.UNREACHABLE, f"{self._source.endpoint}: has no address")
        for address in self._addresses():
            try:
                return self._connect_to(address)
            except TransferError as error:
                if error.fault is not Fault.UNREACHABLE:
                    raise
                unreachable = error
        raise unreachable

    def _connect_to(self, address: _Address) -> Connection:
        connection = Connection(self._begun(address), self._deadline)
        try:
            with self._lock:
                self._connection = connection
                if self._aborted:
                    connection.abort()
            connection.established()
        except TransferError as error:
            connection.close()
            raise TransferError(error.fault, f"{self._source.endpoint}: {error}") from error
        return connection

    def _begun(self, address: _Address) -> socket.socket:
        """A socket that is on its way, so that `abort` finds something to shut down."""
        family, kind, protocol, _, target = address
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        code = sock.connect_ex(target)
        if code not in {0, errno.EINPROGRESS}:
            sock.close()
            raise TransferError(Fault.UNREACHABLE, f"{self._source.endpoint}: {os.strerror(code)}")
        return sock

    def _addresses(self) -> Sequence[_Address]:
        try:
            address = parse_address(self._source.endpoint)
            return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise TransferError(Fault.UNREACHABLE, f"{self._source.endpoint}: {error}") from error

    def _check(self, header: Header) -> None:
        if header.status is Status.REFUSED:
            raise TransferError(Fault.REFUSED, f"{self._source.endpoint} does not know the ticket, or not any more")
        expected = (len(self._target.buffers), self._target.nbytes)
        if (header.blocks, header.nbytes) != expected:
            text = f"offered {header.blocks} blocks, {header.nbytes} bytes; expected {expected[0]}, {expected[1]}"
            raise TransferError(Fault.MISMATCH, text)


def _header(connection: Connection) -> Header:
    try:
        return unpack_header(connection.receive(HEADER_BYTES))
    except ValueError as error:
        raise TransferError(Fault.MISMATCH, str(error)) from error
