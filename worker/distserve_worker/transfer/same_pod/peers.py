"""The serving processes in this pod that a reader has met: a bounded number, without those that are gone."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

_MAX_PEERS: Final = 64


class _Peer(Protocol):
    @property
    def is_over(self) -> bool: ...

    def close(self) -> None: ...


P = TypeVar("P", bound=_Peer)


class Peers(Generic[P]):
    """By the name of their socket; every method may be called from any thread."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, P] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> P | None:
        """The peer, when it was met."""
        with self._lock:
            return self._peers.get(name)

    def meet(self, name: str, make: Callable[[], P]) -> None:
        """Add a peer unless it is there. Those that are gone are let go of, and their memory with them."""
        with self._lock:
            for other in [other for other, peer in self._peers.items() if peer.is_over]:
                self._peers.pop(other).close()
            if name in self._peers:
                self._peers.move_to_end(name)
                return
        peer = make()  # may take long, and the others are needed meanwhile
        with self._lock:
            let_go = peer if name in self._peers else None
            self._peers.setdefault(name, peer)
            if len(self._peers) > _MAX_PEERS:
                _, let_go = self._peers.popitem(last=False)
        if let_go is not None:
            let_go.close()

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            for peer in self._peers.values():
                peer.close()
            self._peers.clear()
