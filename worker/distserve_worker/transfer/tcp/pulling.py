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


class TcpPulling:
    """Pulls over one fresh connection per transfer."""

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
        return TcpTransfer(source, selection, deadline)

    def close(self) -> None:
        """See `Pulling.close`: there is nothing between two pulls."""


class TcpTransfer:
    """One pull; see `Transfer`."""

    def __init__(self, source: Source, selection: Selection, deadline: float) -> None:
        self._source = source
        self._selection = selection
        self._dialing = Dialing(source.endpoint, deadline)

    def abort(self) -> None:
        """See `Transfer.abort`."""
        self._dialing.abort()

    def run(self) -> None:
        """See `Transfer.run`."""
        with self._dialing.connect() as connection:
            connection.send([pack_hello(self._source.ticket)])
            self._check(_header(connection))
            for buffer in incoming(self._selection):
                connection.receive_into(buffer)
            if connection.receive(len(TRAILER)) != TRAILER:
                raise TransferError(Fault.MISMATCH, "no trailer after the last block")

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
