"""The pulling side of the shm transport: maps the memory of the other process and copies out of it."""

import mmap
from collections.abc import Sequence
from typing import Final

import numpy as np

from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.host import Bytes, common_runs, host_parts, own_parts
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.location import Location, Probe
from distserve_worker.transfer.same_pod.pulling import PodPulling
from distserve_worker.transfer.shm.serving import NAME

_BYTES_AT_ONCE: Final = 8 << 20  # between two looks at the clock


class _File:
    """See `Mapped`: a file that is the other process's KV memory."""

    def __init__(self, probe: Probe, files: Sequence[int]) -> None:
        (file,) = files
        self._shape = probe.shape
        mapping = mmap.mmap(file, probe.shape.nbytes, prot=mmap.PROT_READ)
        self._memory: Bytes = np.frombuffer(mapping, np.uint8)

    def copy(self, location: Location, selection: Selection, limit: Limit) -> None:
        """See `Mapped.copy`."""
        shape = self._shape
        theirs = host_parts(self._memory, shape.shard, shape.head_bytes, selection.part)
        ours = own_parts(selection)
        most = max(1, _BYTES_AT_ONCE // selection.bytes_per_block)
        # All views first: each copy takes the cache from the interpreter, which then needs as long for a view as for
        # tens of kilobytes.
        copies = [
            (ours[target], theirs[source]) for target, source in common_runs(selection.blocks, location.blocks, most)
        ]
        for target, source in copies:
            limit.check()
            np.copyto(target, source)


def shm_pulling() -> PodPulling:
    """See `Pulling`."""
    return PodPulling(NAME, _File)
