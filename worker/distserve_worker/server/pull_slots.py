"""How many pulls run side by side: a bound for all, and a smaller one for each prefill worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(slots=True)
class _Peer:
    room: asyncio.Semaphore
    users: int = 0


class PullSlots:
    """One peer that answers slowly, or not at all, never takes the room of the others."""

    def __init__(self, total: int, of_one_peer: int) -> None:
        self._total = asyncio.Semaphore(total)
        self._of_one_peer = of_one_peer
        self._peers: dict[str, _Peer] = {}

    @contextlib.asynccontextmanager
    async def hold(self, address: str) -> AsyncIterator[None]:
        """Wait for a slot to pull from `address`."""
        peer = self._peers.setdefault(address, _Peer(asyncio.Semaphore(self._of_one_peer)))
        peer.users += 1
        try:
            async with peer.room, self._total:
                yield
        finally:
            peer.users -= 1
            if not peer.users:
                del self._peers[address]
