"""The serving side of the cuda_ipc transport: readers in the pod map its GPU memory by CUDA's handle of it."""

from typing import Final

from distserve_worker.engine.interface import MOST_STAGED, Region
from distserve_worker.transfer.cuda_ipc.handles import handle_of
from distserve_worker.transfer.same_pod.serving import PodServing

NAME: Final = "cuda_ipc"


class CudaIpcServing(PodServing):
    """See `Serving`."""

    def __init__(self, region: Region, max_transfers: int) -> None:
        """`region` is on a GPU. Raises `CudaFailed`, OSError."""
        memory = handle_of(region.memory)
        more: dict[str, str | int] = {"device": memory.device, "handle": memory.handle.hex(), "offset": memory.offset}
        # Each of them stages a chunk on this GPU, one at a time.
        super().__init__(NAME, region, [], more, max_transfers, most_readers=MOST_STAGED)
