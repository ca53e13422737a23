"""A parked KV and those who read it: its memory is let go after the last of them."""

from collections.abc import Callable, Sequence

from distserve_worker.server.arrivals import Exported
from distserve_worker.server.reader import Reader, Wanted
from distserve_worker.transfer.deadlines import transfer_seconds
from distserve_worker.transfer.interface import Source


class Kept:
    """Used on the event loop only."""

    def __init__(self, exported: Exported, unread: Callable[[], None]) -> None:
        """`unread` is called each time the last reader is done."""
        self.parked = exported.parked
        self._unread = unread
        self._readers: set[Reader] = set()

    @property
    def readers(self) -> int:
        """How many read the memory, or hold tickets for it."""
        return len(self._readers)

    async def offer(self, pieces: Sequence[Wanted], nbytes: int) -> list[Source]:
        """Let one reader have `pieces`, `nbytes` in all, for as long as is slow. Raises `TransferError`."""
        reader = Reader(self.parked.request_id, pieces, self._ended)
        self._readers.add(reader)
        return await reader.offer(transfer_seconds(nbytes))

    def interrupt(self) -> None:
        """Cut every transfer and take every ticket back."""
        for reader in tuple(self._readers):
            reader.withdraw()

    def _ended(self, reader: Reader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._unread()
