"""The pulling side of the tcp transport."""

from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import incoming
from distserve_worker.transfer.tcp.connection import Connection
from distserve_worker.transfer.tcp.dialing import Dialing
from distserve_worker.transfer.tcp.framing import (
    HEADER_BYTES,
    NAME,
    TRAILER,
    Header,
    Status,
    pack_hello,
    unpack_header,
)
from distserve_worker.transfer.tcp.keeping import KeptConnections


class TcpPulling:
    """See `Pulling`. A connection over which a transfer was complete is kept for the next ones."""

    def __init__(self) -> None:
        self._kept = KeptConnections()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    def try_(self, probe: bytes, deadline: float) -> bool:
        """See `Pulling.try_`: whether somebody listens there."""
        try:
            Dialing(probe.decode(), deadline).connect().close()
        except (TransferError, UnicodeDecodeError):
            return False
        return True

    def begin(self, source: Source, selection: Selection, deadline: float) -> "TcpTransfer":
        """See `Pulling.begin`."""
        return TcpTransfer(source, selection, deadline, self._kept)

    def close(self) -> None:
        """See `Pulling.close`."""
        self._kept.close()


class TcpTransfer:
    """One pull; see `Transfer`."""

    def __init__(self, source: Source, selection: Selection, deadline: float, kept: KeptConnections) -> None:
        self._source = source
        self._selection = selection
        self._dialing = Dialing(source.endpoint, deadline)
        self._kept = kept

    def abort(self) -> None:
        """See `Transfer.abort`."""
        self._dialing.abort()

    def run(self) -> None:
        """See `Transfer.run`."""
        connection, header = self._answered()
        with connection:
            self._check(header)
            for buffer in incoming(self._selection):
                connection.receive_into(buffer)
            if connection.receive(len(TRAILER)) != TRAILER:
                raise TransferError(Fault.MISMATCH, "no trailer after the last block")
            self._kept.put(self._source.endpoint, connection.release())

    def _answered(self) -> tuple[Connection, Header]:
        """What the serving side says first, over a kept connection unless it turns out to have been cut meanwhile."""
        sock = self._kept.take(self._source.endpoint)
        if sock is not None:
            try:
                return self._asked(self._dialing.resume(sock))
            except TransferError as error:
                if error.fault is not Fault.CLOSED:
                    raise
        return self._asked(self._dialing.connect())

    def _asked(self, connection: Connection) -> tuple[Connection, Header]:
        """Show the ticket; nothing of the target is touched yet."""
        try:
            connection.send([pack_hello(self._source.ticket)])
            return connection, _header(connection)
        except TransferError:
            connection.close()
            raise

    def _check(self, header: Header) -> None:
        if header.status is Status.REFUSED:
            raise TransferError(Fault.REFUSED, f"{self._source.endpoint} does not know the ticket, or not any more")
        expected = (len(self._selection.blocks), self._selection.nbytes)
        if (header.blocks, header.nbytes) != expected:
            text = f"offered {header.blocks} blocks, {header.nbytes} bytes; expected {expected[0]}, {expected[1]}"
            raise TransferError(Fault.MISMATCH, text)


def _header(connection: Connection) -> Header:
    try:
        return unpack_header(connection.receive(HEADER_BYTES))
    except ValueError as error:
        raise TransferError(Fault.MISMATCH, str(error)) from error
