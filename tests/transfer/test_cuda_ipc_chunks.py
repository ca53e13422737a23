"""What readers over cuda_ipc stage on the GPU that they read from is bounded: memory of the CPU, over a played GPU."""

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from distserve_testing.endings import Ending
from distserve_testing.played_gpu import played_gpu
from distserve_testing.regions import content, random_region

from distserve_worker.engine.interface import MOST_STAGED, KvLayout
from distserve_worker.transfer.cuda_ipc import pulling, serving
from distserve_worker.transfer.cuda_ipc.handles import MemoryHandle
from distserve_worker.transfer.cuda_ipc.pulling import cuda_ipc_pulling
from distserve_worker.transfer.cuda_ipc.serving import CudaIpcServing
from distserve_worker.transfer.interface import Fault, Transfer, TransferError
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.pulling import PodPulling
from distserve_worker.transfer.turns import Turns

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
BLOCKS = 6
SECONDS = 20.0


class Pod:
    """A rank that serves, and readers of it."""

    def __init__(self, patch: pytest.MonkeyPatch, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        region = random_region(LAYOUT, BLOCKS)
        self.offered = Selection(region, tuple(range(BLOCKS)), region.shard)
        patch.setattr(serving, "handle_of", lambda _: MemoryHandle("GPU-1", bytes(64), 0))
        patch.setattr(pulling, "MappedMemory", lambda *_: SimpleNamespace(tensor=region.memory.flatten()))
        self.serving = CudaIpcServing(region, 32)
        stack.callback(self.serving.close)

    def reader(self) -> PodPulling:
        made = cuda_ipc_pulling(Turns())
        self._stack.callback(made.close)
        return made

    def meets(self, reader: PodPulling) -> bool:
        return reader.try_(self.serving.probe, time.monotonic() + SECONDS)

    def transfer(self, reader: PodPulling, wanted: Selection, seconds: float = SECONDS) -> Transfer:
        deadline = time.monotonic() + seconds
        return reader.begin(self.serving.offer(self.offered, deadline, Ending()), wanted, deadline)


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    with played_gpu(monkeypatch), contextlib.ExitStack() as stack:
        yield Pod(monkeypatch, stack)


def everything() -> Selection:
    region = random_region(LAYOUT, BLOCKS)
    return Selection(region, tuple(range(BLOCKS)), region.shard)


def test_one_reader_stages_one_chunk_on_the_other_gpu(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second transfer waits while the first has one there, until its deadline."""
    reader, first, second = pod.reader(), everything(), everything()
    assert pod.meets(reader)
    gather = DeviceBlocks.gather
    faults: list[Fault] = []

    def meanwhile(blocks: DeviceBlocks, run: slice) -> Any:
        if not faults:
            with pytest.raises(TransferError) as raised:
                pod.transfer(reader, second, seconds=0.1).run()
            faults.append(raised.value.fault)
        return gather(blocks, run)

    monkeypatch.setattr(DeviceBlocks, "gather", meanwhile)
    pod.transfer(reader, first).run()
    assert faults == [Fault.STALLED]
    pod.transfer(reader, second).run()
    assert torch.equal(content(first), content(pod.offered))
    assert torch.equal(content(second), content(pod.offered))


def test_a_gpu_has_no_more_readers_than_chunks_are_counted_for(pod: Pod) -> None:
    """One more takes another way."""
    assert all(pod.meets(pod.reader()) for _ in range(MOST_STAGED))
    assert not pod.meets(pod.reader())
