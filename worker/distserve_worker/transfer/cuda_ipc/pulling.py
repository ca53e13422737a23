"""The pulling side of the cuda_ipc transport: maps the other process's GPU memory and copies on the GPU."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from distserve_worker.engine.interface import CHUNK_BYTES, Region
from distserve_worker.transfer.cuda_ipc.handles import MappedMemory, MemoryHandle
from distserve_worker.transfer.cuda_ipc.serving import NAME
from distserve_worker.transfer.limit import Limit
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.memory.staging import runs
from distserve_worker.transfer.same_pod.location import Location, Probe
from distserve_worker.transfer.same_pod.pulling import PodPulling
from distserve_worker.transfer.turns import Turns


class _Allocation:
    """See `Mapped`: GPU memory of the other process."""

    def __init__(self, turns: Turns, probe: Probe, files: Sequence[int]) -> None:
        if files:
            raise ValueError(f"{len(files)} files come with GPU memory")
        more = probe.more
        handle = MemoryHandle(str(more["device"]), bytes.fromhex(str(more["handle"])), int(more["offset"]))
        self._turns = turns
        self._turn = Turns(most=1)  # what is read is staged on that GPU, which has a bounded number of readers
        self._shape = probe.shape
        self._memory = MappedMemory(handle, probe.shape.nbytes)

    def copy(self, location: Location, selection: Selection, limit: Limit) -> None:
        """See `Mapped.copy`."""
        shape = self._shape
        layout = replace(selection.region.layout, layers=shape.shard.layers, kv_heads=shape.shard.heads)
        region = Region(shape.shard, layout, self._memory.tensor.view(shape.blocks, -1))
        offered = Selection(region, location.blocks, location.part)
        with self._turn.one(limit.check), self._turns.one(limit.check):
            _copy(offered, selection, limit)


def _copy(offered: Selection, selection: Selection, limit: Limit) -> None:
    """A chunk at a time."""
    with DeviceBlocks(offered) as source, DeviceBlocks(selection) as target:
        for run in runs(selection, CHUNK_BYTES):
            target.scatter(run, source.gather(run), after=source)
            target.wait(limit.check)


def cuda_ipc_pulling(turns: Turns) -> PodPulling:
    """See `Pulling`; `turns`: of all pulls into this rank's GPU."""
    return PodPulling(NAME, partial(_Allocation, turns))
