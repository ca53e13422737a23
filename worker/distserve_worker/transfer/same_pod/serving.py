"""What the serving sides inside a pod do alike: give the memory out, and keep the board of offers."""

from collections.abc import Mapping, Sequence

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.interface import Ended, Source
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.hosting import MOST_VISITORS
from distserve_worker.transfer.same_pod.location import Probe, Shape
from distserve_worker.transfer.same_pod.offering import Offering


class PodServing:
    """See `Serving`."""

    def __init__(
        self,
        name: str,
        region: Region,
        files: Sequence[int],
        more: Mapping[str, str | int],
        max_transfers: int,
        most_readers: int = MOST_VISITORS,
    ) -> None:
        """Readers get `files` and, in the probe, `more`; no more than `most_readers` come. Raises OSError."""
        self._name = name
        self._region = region  # its file is closed with it
        self._offering = Offering(files, max_transfers, most_readers)
        self._probe = Probe(self._offering.socket, Shape.of(region), more).packed()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return self._name

    @property
    def probe(self) -> bytes:
        """See `Serving.probe`: the socket that gives the memory out, and its shape."""
        return self._probe

    def offer(self, selection: Selection, deadline: float, ended: Ended) -> Source:
        """See `Serving.offer`."""
        return self._offering.offer(selection, deadline, ended)

    def withdraw(self, ticket: bytes) -> None:
        """See `Serving.withdraw`."""
        self._offering.withdraw(ticket)

    def close(self) -> None:
        """See `Serving.close`."""
        self._offering.close()
