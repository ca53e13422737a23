"""What a GPU may still read is not handed out again: memory of the CPU, with a stream that the test ends."""

import contextlib
import weakref
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from distserve_testing.regions import content, random_region

from distserve_worker.engine.interface import KvLayout
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.memory import device
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")


class Stream:
    """One that is busy until it is waited for, or has been looked at a few times."""

    looks: ClassVar[int] = 3

    def __init__(self, _device: torch.device) -> None:
        self._left = self.looks

    def query(self) -> bool:
        self._left -= 1
        return self._left < 0

    def synchronize(self) -> None:
        self._left = 0

    def wait_stream(self, _other: "Stream") -> None:
        pass


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(Stream=Stream))
    monkeypatch.setattr(device, "on_gpu", contextlib.nullcontext)
    monkeypatch.setattr(device, "on_stream", contextlib.nullcontext)


def selection() -> Selection:
    region = random_region(LAYOUT, 3)
    return Selection(region, (2, 0), region.shard)


def begun(source: DeviceBlocks, target: DeviceBlocks) -> "weakref.ref[torch.Tensor]":
    staged = source.gather(slice(0, 2))
    target.scatter(slice(0, 2), staged, after=source)
    return weakref.ref(staged)


def test_what_was_gathered_stays_until_the_copy_of_it_is_over() -> None:
    """B4: else another transfer could fill it meanwhile."""
    offered, wanted = selection(), selection()
    seen: list[bool] = []
    with DeviceBlocks(offered) as source, DeviceBlocks(wanted) as target:
        staged = begun(source, target)
        target.wait(lambda: seen.append(staged() is not None))
        assert seen == [True] * Stream.looks
        assert staged() is None
    assert torch.equal(content(wanted), content(offered))


def test_a_copy_that_is_given_up_keeps_what_it_reads_until_the_gpu_has_stopped() -> None:
    def fail() -> None:
        raise TransferError(Fault.ABORTED, "ended by this side")

    at_the_end: list[bool] = []
    source, target = DeviceBlocks(selection()), DeviceBlocks(selection())
    staged = begun(source, target)
    ended: Any = target.stream
    ended.synchronize = lambda: at_the_end.append(staged() is not None)

    def give_up() -> None:
        with target:
            target.wait(fail)

    with pytest.raises(TransferError):
        give_up()
    assert at_the_end == [True]
    assert staged() is None


def test_what_comes_from_the_cpu_is_not_kept() -> None:
    wanted = selection()
    with DeviceBlocks(wanted) as target:
        rows = content(selection()).numpy()
        kept = weakref.ref(rows)
        target.scatter(slice(0, 2), rows)
        del rows
        assert kept() is None
