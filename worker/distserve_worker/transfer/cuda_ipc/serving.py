"""The serving side of the cuda_ipc transport: readers in the pod map its GPU memory."""

from typing import Final

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.cuda_ipc.handles import handle_of
from distserve_worker.transfer.interface import Ended, Source
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.location import Probe, Shape
from distserve_worker.transfer.same_pod.offering import Offering

NAME: Final = "cuda_ipc"


class CudaIpcServing:
    """See `Serving`."""

    def __init__(self, region: Region, max_transfers: int) -> None:
        """`region` is on a GPU. Raises `CudaFailed`, OSError."""
        memory = handle_of(region.memory)
        self._offering = Offering([], max_transfers)
        more: dict[str, str | int] = {"device": memory.device, "handle": memory.handle.hex(), "offset": memory.offset}
        self._probe = Probe(self._offering.socket, Shape.of(region), more).packed()

    @property
    def name(self) -> str:
        """The transport's name on the wire."""
        return NAME

    @property
    def probe(self) -> bytes:
        """See `Serving.probe`: as of shm, with CUDA's handle of the memory."""
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
