"""The pulling side of the shm transport: maps the memory of the other process and copies out of it."""

import mmap
import time

import numpy as np

from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.memory.host import Bytes, host_parts, selected_parts
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.board import BoardView
from distserve_worker.transfer.same_pod.location import Location, Shape, unpacked_probe
from distserve_worker.transfer.same_pod.peers import Peers
from distserve_worker.transfer.same_pod.visiting import Visit
from distserve_worker.transfer.shm.serving import NAME


class _Peer:
    """The mapped memory of one serving process."""

    def __init__(self, socket: str, shape: Shape, deadline: float) -> None:
        """Raises OSError or ValueError when that process does not share its memory with this one."""
        self.shape = shape
        self.visit = Visit(socket, deadline)
        try:
            board, memory = self.visit.files
            self.board = BoardView(board)
            mapping = mmap.mmap(memory, shape.nbytes, prot=mmap.PROT_READ)
            self.memory: Bytes = np.frombuffer(mapping, np.uint8)
        except (OSError, ValueError):
            self.visit.close()
            raise
        finally:
            self.visit.close_files()

    @property
    def is_over(self) -> bool:
        """Whether the process is gone."""
        return self.visit.is_over

    def close(self) -> None:
        """The memory is let go of with the last transfer that reads it."""
        self.visit.close()


class ShmPulling:
    """See `Pulling`."""

    def __init__(self) -> None:
        self._peers: Peers[_Peer] = Peers()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    def try_(self, probe: bytes, deadline: float) -> bool:
        """See `Pulling.try_`: whether the other process is in this pod and gives its memory to this one."""
        try:
            socket, shape, _ = unpacked_probe(probe)
            self._peers.meet(socket, lambda: _Peer(socket, shape, deadline))
        except (OSError, ValueError):
            return False
        return True

    def begin(self, source: Source, selection: Selection, deadline: float) -> "ShmTransfer":
        """See `Pulling.begin`."""
        return ShmTransfer(self._peers.get(source.endpoint), source, selection, deadline)

    def close(self) -> None:
        """See `Pulling.close`."""
        self._peers.close()


class ShmTransfer:
    """One pull; see `Transfer`."""

    def __init__(self, peer: _Peer | None, source: Source, selection: Selection, deadline: float) -> None:
        self._peer = peer
        self._source = source
        self._selection = selection
        self._deadline = deadline
        self._aborted = False

    def abort(self) -> None:
        """See `Transfer.abort`; seen between two blocks."""
        self._aborted = True

    def run(self) -> None:
        """See `Transfer.run`."""
        peer = self._peer
        if peer is None:
            raise TransferError(Fault.UNREACHABLE, f"{self._source.endpoint} was never met, or is gone")
        self._copy(peer, self._checked(peer))

    def _checked(self, peer: _Peer) -> Location:
        try:
            location = Location.unpacked(self._source.location)
        except ValueError as error:
            raise TransferError(Fault.MISMATCH, str(error)) from error
        objection = peer.shape.objection(location, self._selection)
        if objection is not None or self._selection.nbytes != self._source.nbytes:
            text = objection or f"{self._source.nbytes} bytes are offered, {self._selection.nbytes} are needed"
            raise TransferError(Fault.MISMATCH, text)
        return location

    def _copy(self, peer: _Peer, location: Location) -> None:
        ticket = self._source.ticket
        if not peer.board.stands(location.slot, ticket):
            raise TransferError(Fault.REFUSED, "the offer does not stand, or not any more")
        shape = peer.shape
        offered = host_parts(peer.memory, shape.shard, shape.head_bytes, self._selection.part, location.blocks)
        # All views first: each copy takes the cache from the interpreter, which then needs as long for a view as for
        # tens of kilobytes.
        for target, source in list(zip(selected_parts(self._selection), offered, strict=True)):
            if self._aborted or time.monotonic() > self._deadline:
                raise self._late()
            np.copyto(target, source)
        if not peer.board.take(location.slot, ticket):
            raise TransferError(Fault.REFUSED, "the offer ended while it was read")

    def _late(self) -> TransferError:
        if self._aborted:
            return TransferError(Fault.ABORTED, "ended by this side")
        return TransferError(Fault.STALLED, "too slow for the deadline of the transfer")
