"""What the pulling sides inside a pod do alike: meet the serving process, copy, and look whether the offer stood."""

from collections.abc import Callable, Sequence
from typing import Protocol

from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.board import BoardView
from distserve_worker.transfer.same_pod.location import Location, Probe, Shape
from distserve_worker.transfer.same_pod.peers import Peers
from distserve_worker.transfer.same_pod.visiting import Visit


class Mapped(Protocol):
    """Memory of another process that this one reaches; it is unmapped when nobody refers to it any more."""

    def copy(self, location: Location, selection: Selection, limit: Limit) -> None:
        """Fill the selection from there; all of it is there at the end. Raises `TransferError`."""
        ...


Mapping = Callable[[Probe, Sequence[int]], Mapped]  # from a probe and the files; raises as `_Peer`


class _Peer:
    """One serving process."""

    def __init__(self, probe: Probe, deadline: float, mapping: Mapping) -> None:
        """Raises OSError, ValueError, KeyError or `TransferError` when that process does not share its memory."""
        self.shape: Shape = probe.shape
        self._visit = Visit(probe.socket, deadline)
        try:
            board, *files = self._visit.files
            self.board = BoardView(board)
            self.memory = mapping(probe, files)
        except BaseException:
            self._visit.close()
            raise
        finally:
            self._visit.close_files()

    @property
    def is_over(self) -> bool:
        """Whether the process is gone."""
        return self._visit.is_over

    def close(self) -> None:
        """The memory is let go of with the last transfer that reads it."""
        self._visit.close()


class PodPulling:
    """See `Pulling`."""

    def __init__(self, name: str, mapping: Mapping) -> None:
        self._name = name
        self._mapping = mapping
        self._peers: Peers[_Peer] = Peers()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return self._name

    def try_(self, probe: bytes, deadline: float) -> bool:
        """See `Pulling.try_`: whether the other process is in this pod and gives its memory to this one."""
        try:
            found = Probe.unpacked(probe)
            self._peers.meet(found.socket, lambda: _Peer(found, deadline, self._mapping))
        except (OSError, ValueError, KeyError, TransferError):  # of another kind of probe, or memory out of reach
            return False
        return True

    def begin(self, source: Source, selection: Selection, deadline: float) -> "PodTransfer":
        """See `Pulling.begin`."""
        return PodTransfer(self._peers.get(source.endpoint), source, selection, deadline)

    def close(self) -> None:
        """See `Pulling.close`."""
        self._peers.close()


class PodTransfer:
    """One pull; see `Transfer`."""

    def __init__(self, peer: _Peer | None, source: Source, selection: Selection, deadline: float) -> None:
        self._peer = peer
        self._source = source
        self._selection = selection
        self._limit = Limit(deadline)

    def abort(self) -> None:
        """See `Transfer.abort`; seen between two blocks."""
        self._limit.aborted = True

    def run(self) -> None:
        """See `Transfer.run`."""
        peer, ticket = self._peer, self._source.ticket
        if peer is None:
            raise TransferError(Fault.UNREACHABLE, f"{self._source.endpoint} was never met, or is gone")
        location = self._checked(peer)
        if not peer.board.stands(location.slot, ticket):
            raise TransferError(Fault.REFUSED, "the offer does not stand, or not any more")
        peer.memory.copy(location, self._selection, self._limit)
        if not peer.board.take(location.slot, ticket):
            raise TransferError(Fault.REFUSED, "the offer ended while it was read")

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
