"""The serving side of the shm transport: its KV memory is a file, which readers map."""

from typing import Final

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.interface import Ended, Source
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.location import Probe, Shape
from distserve_worker.transfer.same_pod.offering import Offering

NAME: Final = "shm"


class ShmServing:
    """See `Serving`."""

    def __init__(self, region: Region, max_transfers: int) -> None:
        """`region` is a file. Raises OSError."""
        assert region.file is not None, "memory of the CPU that was made to be shared"
        self._region = region  # its file is closed with it
        self._offering = Offering([region.file], max_transfers)
        self._probe = Probe(self._offering.socket, Shape.of(region)).packed()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

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
