"""The serving side of the tcp transport: a listener, and one thread per running transfer."""

import contextlib
import logging
import socket
import threading
import time

from distserve_proto.addresses import format_address
from distserve_worker.transfer.deadlines import HANDSHAKE_SECONDS
from distserve_worker.transfer.interface import Ended, Fault, Source, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import outgoing
from distserve_worker.transfer.tcp.connection import Connection
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

log = logging.getLogger(__name__)

_SEND_BUFFER_BYTES = 1 << 20  # a third faster on loopback than the kernel's own choice, and enough for 5 GB/s at 0.2 ms
_ACCEPT_PAUSE_SECONDS = 0.1  # after an error such as too many open files


class TcpServing:
    """Serves offered blocks on one port until `close`."""

    def __init__(self, listener: socket.socket, advertised_host: str, max_transfers: int) -> None:
        """Take over a listening socket; readers are told to connect to `advertised_host`."""
        self._listener = listener
        self._endpoint = format_address(advertised_host, listener.getsockname()[1])
        self._tickets = Tickets(max_transfers)
        # Strangers that show no ticket hold a connection for a while: leave room for the real readers beside them.
        self._slots = threading.BoundedSemaphore(2 * max_transfers)
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="kv-listener", daemon=True).start()

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
        """Stop listening and end every offer and transfer."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept, which close alone does not
        self._listener.close()
        self._tickets.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            self._slots.acquire()  # whoever holds one has a deadline; until then the kernel's backlog is the queue
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                self._slots.release()
                if not self._closed.is_set():
                    log.warning("accepting a KV connection: %s", error)
                    self._closed.wait(_ACCEPT_PAUSE_SECONDS)
                continue
            threading.Thread(target=self._serve, args=(sock,), name="kv-sender", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
                self._answer(Connection(sock, time.monotonic() + HANDSHAKE_SECONDS))
        except TransferError as error:
            log.info("KV transfer: %s", error)
        finally:
            self._slots.release()

    def _answer(self, connection: Connection) -> None:
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
            fault = None
        except TransferError as error:
            fault = error
            raise
        finally:
            self._tickets.finish(ticket, fault)


def _send(connection: Connection, selection: Selection) -> None:
    connection.send([pack_header(Header(Status.READY, len(selection.blocks), selection.nbytes))])
    for buffers in outgoing(selection):
        connection.send(buffers)
    connection.send([TRAILER])
