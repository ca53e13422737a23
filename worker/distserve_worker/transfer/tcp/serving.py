"""The serving side of the tcp transport: a thread for each connection, which sends what its reader asks for."""

import socket
import threading
import time

from distserve_proto.addresses import format_address
from distserve_worker.transfer.accepting import Accepting
from distserve_worker.transfer.deadlines import HANDSHAKE_SECONDS, SERVER_KEEPS_SECONDS
from distserve_worker.transfer.interface import Ended, Fault, Source, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import outgoing
from distserve_worker.transfer.tcp.connection import Connection, has_more
from distserve_worker.transfer.tcp.framing import (
    HELLO_BYTES,
    NAME,
    TRAILER,
    Header,
    Status,
    pack_header,
    unpack_hello,
)
from distserve_worker.transfer.tickets import Tickets

# The kernel doubles it. What is on its way stays in a core's cache then: twice as much is a third slower on loopback.
_SEND_BUFFER_BYTES = 1 << 19


class TcpServing:
    """Serves offered blocks on one port until `close`."""

    def __init__(self, listener: socket.socket, advertised_host: str, max_transfers: int) -> None:
        """Take over a listening socket; readers are told to connect to `advertised_host`."""
        self._endpoint = format_address(advertised_host, listener.getsockname()[1])
        self._tickets = Tickets(max_transfers)
        self._kept = threading.BoundedSemaphore(max_transfers)  # connections on which nothing is asked for now
        # Those that run, those that are kept, and strangers: without a ticket one holds its connection for a while.
        self._accepting = Accepting(listener, self._serve, 3 * max_transfers, "kv-tcp", HANDSHAKE_SECONDS)

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    @property
    def endpoint(self) -> str:
        """Where readers connect, as host:port."""
        return self._endpoint

    @property
    def probe(self) -> bytes:
        """See `Serving.probe`: the endpoint."""
        return self._endpoint.encode()

    def offer(self, selection: Selection, deadline: float, ended: Ended) -> Source:
        """See `Serving.offer`."""
        return Source(self._endpoint, self._tickets.issue(selection, deadline, ended), selection.nbytes)

    def withdraw(self, ticket: bytes) -> None:
        """See `Serving.withdraw`."""
        self._tickets.withdraw(ticket)

    def close(self) -> None:
        """Stop listening and end every offer, transfer and connection."""
        self._tickets.close()
        self._accepting.close()

    def _serve(self, sock: socket.socket) -> None:
        """One transfer after another, until one fails or the reader asks for no more."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._answer(sock)
        while self._has_more(sock):
            self._answer(sock)

    def _has_more(self, sock: socket.socket) -> bool:
        if not self._kept.acquire(blocking=False):
            return False  # its reader makes another one
        try:
            return has_more(sock, SERVER_KEEPS_SECONDS)
        finally:
            self._kept.release()

    def _answer(self, sock: socket.socket) -> None:
        """One transfer. Raises `TransferError`; then the connection may be in the middle of something."""
        connection = Connection(sock, time.monotonic() + HANDSHAKE_SECONDS)
        try:
            ticket = unpack_hello(connection.receive(HELLO_BYTES))
            grant = self._tickets.redeem(ticket, connection.abort)
        except ValueError as error:
            raise TransferError(Fault.MISMATCH, str(error)) from error
        except TransferError as error:
            if error.fault is Fault.REFUSED:
                connection.send([pack_header(Header(Status.REFUSED))])
            raise
        fault: TransferError | None = TransferError(Fault.ABORTED, "the sender failed")
        try:
            connection.extend(grant.deadline)
            _send(connection, grant.selection)
            connection.release()
            fault = None
        except TransferError as error:
            fault = error
            raise
        finally:
            self._tickets.finish(ticket, fault)


def _send(connection: Connection, selection: Selection) -> None:
    head = [pack_header(Header(Status.READY, len(selection.blocks), selection.nbytes))]
    for buffers in outgoing(selection):
        connection.send([*head, *buffers])  # together: by itself the header would wake the reader for nothing
        head = []
    connection.send([TRAILER])
