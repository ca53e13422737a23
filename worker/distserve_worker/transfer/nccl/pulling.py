"""The pulling side of the nccl transport: one communicator for each peer, made anew after whatever has failed."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.nccl.framing import NAME
from distserve_worker.transfer.nccl.identities import Attempts, Identities
from distserve_worker.transfer.nccl.link import Link
from distserve_worker.transfer.turns import Turns

_MAX_PEERS: Final = 64
_LOCK_POLL_SECONDS: Final = 0.05


class _Peer:
    """The way to one serving rank: one link at most, and one transfer at a time, so both sides agree on the order."""

    def __init__(self, link: Callable[[Limit], Link], turns: Turns) -> None:
        """`link` makes one. Raises `TransferError`."""
        self._make = link
        self._turns = turns
        self._lock = threading.Lock()
        self._link: Link | None = None
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
            with self._turns.one(limit.check):  # nothing was asked yet: whoever gives up here leaves the link as it is
                self._pull_over(link, source, selection, limit)
        finally:
            self._lock.release()

    def _pull_over(self, link: Link, source: Source, selection: Selection, limit: Limit) -> None:
        self._running = limit
        try:
            link.pull(source, selection, limit)
        except BaseException as error:  # after anything but a refusal it is in the middle of the protocol
            if not (isinstance(error, TransferError) and error.fault is Fault.REFUSED):
                self._drop()
            raise
        finally:
            self._running = None

    def abort(self, limit: Limit) -> None:
        """End the transfer of that limit, now if it is the one that runs."""
        limit.aborted = True
        link = self._link
        if link is not None and self._running is limit:
            link.connection.abort()

    def tidy(self) -> None:
        """Let go of a link whose other end has gone: until then it keeps memory of the GPU. One in use tells itself."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._link is not None and self._link.is_over:
                self._drop()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the link; no transfer runs any more."""
        with self._lock:
            self._drop()

    def _met(self, limit: Limit) -> Link:
        if self._link is None:
            self._link = self._make(limit)
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

    def __init__(self, region: Region, turns: Turns) -> None:
        """`region` is on a GPU; `turns`: of all pulls into it."""
        self._device = region.memory.device
        self._turns = turns
        self._identities = Identities()
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
        with self._lock:
            others = [peer for met, peer in self._peers.items() if met != endpoint]
        for other in others:
            other.tidy()
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
            peer = self._peers.setdefault(endpoint, self._stranger(endpoint))
            self._peers.move_to_end(endpoint)
            oldest = self._peers.popitem(last=False)[1] if len(self._peers) > _MAX_PEERS else None
        if oldest is not None:
            oldest.close()
        return peer

    def _stranger(self, endpoint: str) -> _Peer:
        return _Peer(partial(Link, endpoint, self._device, Attempts(self._identities)), self._turns)


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
