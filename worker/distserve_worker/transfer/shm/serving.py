"""The serving side of the shm transport: its KV memory is a file, which readers map."""

from typing import Final

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.same_pod.serving import PodServing

NAME: Final = "shm"


class ShmServing(PodServing):
    """See `Serving`."""

    def __init__(self, region: Region, max_transfers: int) -> None:
        """`region` is a file. Raises OSError."""
        assert region.file is not None, "memory of the CPU that was made to be shared"
        super().__init__(NAME, region, [region.file], {}, max_transfers)
