"""The pulling side of the nccl transport: one communicator for each peer, made anew after whatever has failed."""

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import runs
from distserve_worker.transfer.nccl.framing import (
    CHUNK_BYTES,
    FIRST_BYTES,
    HEADER,
    HELLO,
    MAGIC,
    NAME,
    REQUEST,
    TAKEN,
    first_message,
)
from distserve_worker.transfer.nccl.pynccl import RECEIVER, Pair, unique_id
from distserve_worker.transfer.tcp.dialing import Dialing

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_MAX_PEERS: Final = 64
_LOCK_POLL_SECONDS: Final = 0.05


class _Link:
    """A connection and a communicator to one serving rank."""

    def __init__(self, endpoint: str, device: "torch.device", limit: Limit) -> None:
        """Meet it and try whether bytes arrive. Raises `TransferError`."""
        import torch

        self._device = device
        self.connection = Dialing(endpoint, limit.deadline).connect()
        try:
            identity = unique_id()
            self.connection.send([HELLO.pack(MAGIC, identity)])
            self._pair = Pair(identity, RECEIVER, device, limit.check)
        except BaseException:
            self.connection.close()
            raise
        try:
            with self._pair.on_stream():
                room = torch.zeros(FIRST_BYTES, dtype=torch.uint8, device=device)
            self._pair.receive(room, limit.check)
            self._pair.wait(limit.check)
            with self._pair.on_stream():  # on any other one it would wait for a step
                seen = room.tolist()
            if seen != first_message():
                raise TransferError(Fault.MISMATCH, f"{endpoint}: other bytes arrive over NCCL than were sent")
        except BaseException:
            self.close()
            raise

    def pull(self, source: Source, selection: Selection, limit: Limit) -> None:
        """Raises `TransferError`; then, unless it was refused, nothing can go over this link any more."""
        self.connection.extend(limit.deadline)
        self.connection.send([REQUEST.pack(source.ticket)])
        found, blocks, nbytes = HEADER.unpack(self.connection.receive(HEADER.size))
        if not found:
            raise TransferError(Fault.REFUSED, f"{source.endpoint} does not know the ticket, or not any more")
        if (blocks, nbytes) != (len(selection.blocks), selection.nbytes):
            text = f"offered {blocks} blocks, {nbytes} bytes; needed {len(selection.blocks)}, {selection.nbytes}"
            raise TransferError(Fault.MISMATCH, text)

        def check() -> None:
            limit.check()
            self.connection.check_open()

        with DeviceBlocks(selection) as target:
            for run in runs(selection, CHUNK_BYTES):
                room = target.room(run)
                self._pair.wait_for(target.stream)
                self._pair.receive(room, check)
                self._pair.wait(check)
                target.scatter(run, room)
                target.wait(limit.check)
        self.connection.send([TAKEN])

    def close(self) -> None:
        """End both; the reason why is told elsewhere."""
        self.connection.close()
        try:
            self._pair.abort()
        except TransferError as error:
            log.warning("%s", error)


class _Peer:
    """The way to one serving rank: one link at most, and one transfer at a time, so both sides agree on the order."""

    def __init__(self, endpoint: str, device: "torch.device") -> None:
        self._endpoint = endpoint
        self._device = device
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._running: Limit | None = None

    def meet(self, limit: Limit) -> None:
        """Have a link. Raises `TransferError`."""
        self._acquire(limit)
        try:
            self._met(limit)
        finally:
            self._lock.release()

    def pull(self, source: Source, selection: Selection, limit: Limit) -> None:
        """Raises `TransferError`."""
        self._acquire(limit)
        try:
            link = self._met(limit)
            self._running = limit
            link.pull(source, selection, limit)
        except BaseException as error:  # after anything but a refusal it is in the middle of the protocol
            if not (isinstance(error, TransferError) and error.fault is Fault.REFUSED):
                self._drop()
            raise
        finally:
            self._running = None
            self._lock.release()

    def abort(self, limit: Limit) -> None:
        """End the transfer of that limit, now if it is the one that runs."""
        limit.aborted = True
        link = self._link
        if link is not None and self._running is limit:
            link.connection.abort()

    def close(self) -> None:
        """Let go of the link; no transfer runs any more."""
        with self._lock:
            self._drop()

    def _met(self, limit: Limit) -> _Link:
        if self._link is None:
            self._link = _Link(self._endpoint, self._device, limit)
        return self._link

    def _drop(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            link.close()

    def _acquire(self, limit: Limit) -> None:
        limit.check()
        while not self._lock.acquire(timeout=_LOCK_POLL_SECONDS):
            limit.check()


class NcclPulling:
    """See `Pulling`."""

    def __init__(self, region: Region) -> None:
        """`region` is on a GPU."""
        self._device = region.memory.device
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    def try_(self, probe: bytes, deadline: float) -> bool:
        """See `Pulling.try_`: makes a communicator, over which bytes arrive. Raises `TransferError`."""
        try:
            endpoint = probe.decode()
        except UnicodeDecodeError:
            return False
        self._peer(endpoint).meet(Limit(deadline))
        return True

    def begin(self, source: Source, selection: Selection, deadline: float) -> "NcclTransfer":
        """See `Pulling.begin`."""
        return NcclTransfer(self._peer(source.endpoint), source, selection, deadline)

    def close(self) -> None:
        """See `Pulling.close`."""
        with self._lock:
            peers = tuple(self._peers.values())
            self._peers.clear()
        for peer in peers:
            peer.close()

    def _peer(self, endpoint: str) -> _Peer:
        with self._lock:
            peer = self._peers.setdefault(endpoint, _Peer(endpoint, self._device))
            self._peers.move_to_end(endpoint)
            oldest = self._peers.popitem(last=False)[1] if len(self._peers) > _MAX_PEERS else None
        if oldest is not None:
            oldest.close()
        return peer


class NcclTransfer:
    """One pull; see `Transfer`."""

    def __init__(self, peer: _Peer, source: Source, selection: Selection, deadline: float) -> None:
        self._peer = peer
        self._source = source
        self._selection = selection
        self._limit = Limit(deadline)

    def abort(self) -> None:
        """See `Transfer.abort`."""
        self._peer.abort(self._limit)

    def run(self) -> None:
        """See `Transfer.run`."""
        self._peer.pull(self._source, self._selection, self._limit)
