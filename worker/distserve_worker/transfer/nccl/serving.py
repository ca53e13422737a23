"""The serving side of the nccl transport: a thread for each pair of ranks, which sends what its reader asks for."""

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from distserve_proto.addresses import format_address
from distserve_worker.engine.interface import CHUNK_BYTES, Region
from distserve_worker.transfer.accepting import Accepting
from distserve_worker.transfer.deadlines import HANDSHAKE_SECONDS
from distserve_worker.transfer.interface import Ended, Fault, Source, TransferError
from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import runs
from distserve_worker.transfer.nccl.first_block import first_block
from distserve_worker.transfer.nccl.framing import HEADER, HELLO, NAME, REQUEST, TAKEN
from distserve_worker.transfer.nccl.pynccl import ID_BYTES, SENDER, Pair
from distserve_worker.transfer.tcp.connection import Connection, has_more, watch_peer
from distserve_worker.transfer.tickets import Tickets
from distserve_worker.transfer.turns import Turns

if TYPE_CHECKING:
    import torch

_MEETING_SECONDS: Final = 20.0  # for both communicators to find each other
_MAX_READERS: Final = 64  # one more takes another transport


class NcclServing:
    """See `Serving`."""

    def __init__(
        self, region: Region, listener: socket.socket, advertised_host: str, max_transfers: int, turns: Turns
    ) -> None:
        """Take over a listening socket; `region` is on a GPU, `turns`: of all that is sent from it."""
        self._device: torch.device = region.memory.device
        self._endpoint = format_address(advertised_host, listener.getsockname()[1])
        self._tickets = Tickets(max_transfers)
        self._turns = turns
        self._accepting = Accepting(listener, self._serve, _MAX_READERS, "kv-nccl")

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    @property
    def probe(self) -> bytes:
        """See `Serving.probe`: where a reader connects."""
        return self._endpoint.encode()

    def offer(self, selection: Selection, deadline: float, ended: Ended) -> Source:
        """See `Serving.offer`."""
        return Source(self._endpoint, self._tickets.issue(selection, deadline, ended), selection.nbytes)

    def withdraw(self, ticket: bytes) -> None:
        """See `Serving.withdraw`."""
        self._tickets.withdraw(ticket)

    def close(self) -> None:
        """See `Serving.close`."""
        self._accepting.close()
        self._tickets.close()

    def _serve(self, sock: socket.socket) -> None:
        """Meet the reader, then send what it asks for until it goes or something fails; a new one begins anew."""
        watch_peer(sock)  # its reader keeps it for as long as it lives
        connection = Connection(sock, time.monotonic() + HANDSHAKE_SECONDS)
        if connection.receive(len(HELLO)) != HELLO:
            raise TransferError(Fault.MISMATCH, "not a hello of this protocol version")
        connection.send([HELLO])
        identity = connection.receive(ID_BYTES)
        check = _check(Limit(time.monotonic() + _MEETING_SECONDS), connection)
        pair = Pair(identity, SENDER, self._device, check)
        try:
            _send(pair, first_block(self._device), check)
            while has_more(sock, None):
                self._answer(Connection(sock, time.monotonic() + HANDSHAKE_SECONDS), pair)
        finally:
            pair.abort()

    def _answer(self, connection: Connection, pair: Pair) -> None:
        (ticket,) = REQUEST.unpack(connection.receive(REQUEST.size))
        limit = Limit(time.monotonic() + HANDSHAKE_SECONDS)

        def abort() -> None:
            limit.aborted = True
            connection.abort()

        try:
            grant = self._tickets.redeem(ticket, abort)
        except TransferError:
            connection.send([HEADER.pack(False, 0, 0)])
            return
        fault: TransferError | None = TransferError(Fault.ABORTED, "the sender failed")
        try:
            limit.deadline = grant.deadline
            connection.extend(grant.deadline)
            self._grant(connection, pair, grant.selection, limit)
            connection.release()
            fault = None
        except TransferError as error:
            fault = error
            raise
        finally:
            self._tickets.finish(ticket, fault)

    def _grant(self, connection: Connection, pair: Pair, selection: Selection, limit: Limit) -> None:
        check = _check(limit, connection)
        connection.send([HEADER.pack(True, len(selection.blocks), selection.nbytes)])
        with self._turns.one(check):
            _send(pair, selection, check)
        if connection.receive(len(TAKEN)) != TAKEN:
            raise TransferError(Fault.MISMATCH, "the reader did not say that it has everything")


def _check(limit: Limit, connection: Connection) -> Callable[[], None]:
    def check() -> None:
        limit.check()
        connection.check_open()

    return check


def _send(pair: Pair, selection: Selection, check: Callable[[], None]) -> None:
    blocks = DeviceBlocks(selection)
    for run in runs(selection, CHUNK_BYTES):
        _send_run(pair, blocks, run, check)


def _send_run(pair: Pair, blocks: DeviceBlocks, run: slice, check: Callable[[], None]) -> None:
    """A function of its own, so that its memory is let go of before there is more for the next run."""
    staged = blocks.gather(run)
    pair.wait_for(blocks.stream)
    pair.send(staged, check)
    pair.wait(check)
