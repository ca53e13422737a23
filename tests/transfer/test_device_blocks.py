"""What a GPU may still read is not handed out again: memory of the CPU, over a played GPU."""

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from distserve_testing.played_gpu import Event, played_gpu
from distserve_testing.regions import content, random_region
from torch.utils._python_dispatch import TorchDispatchMode

from distserve_worker.engine.interface import KvLayout, KvShard
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with played_gpu(monkeypatch):
        yield


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
        assert seen == [True] * Event.looks
        assert staged() is None
    assert torch.equal(content(wanted), content(offered))


def test_a_copy_that_is_given_up_keeps_what_it_reads_until_the_gpu_has_stopped() -> None:
    def fail() -> None:
        raise TransferError(Fault.ABORTED, "ended by this side")

    at_the_end: list[bool] = []
    source, target = DeviceBlocks(selection()), DeviceBlocks(selection())
    staged = begun(source, target)
    Event.waits.append(lambda: at_the_end.append(staged() is not None))

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


def test_all_transfers_of_a_gpu_share_a_stream() -> None:
    """Else torch would keep a chunk of memory for each of the many streams that it hands out."""
    assert DeviceBlocks(selection()).stream is DeviceBlocks(selection()).stream


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What is copied block by block: the number format of each such copy."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.formats: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), more: Any = None) -> Any:
        if function in {torch.ops.aten.index_select.default, torch.ops.aten.index_copy_.default}:
            self.formats.append(arguments[0].dtype)
        return function(*arguments, **(more or {}))


@pytest.mark.parametrize(
    ("head_dim", "block_tokens", "dtype", "word"),
    [(16, 16, "FP32", torch.int64), (3, 1, "FP32", torch.int32), (3, 1, "BF16", torch.int16)],
)
@pytest.mark.parametrize("part", [KvShard(0, 3, 0, 2), KvShard(1, 2, 1, 1)], ids=["whole", "part"])
def test_parts_of_blocks_go_in_words_as_large_as_a_head_allows(
    head_dim: int, block_tokens: int, dtype: str, word: torch.dtype, part: KvShard
) -> None:
    """B14: every byte of the part, and nothing beside it."""
    layout = KvLayout(3, 2, head_dim, block_tokens, dtype)
    offered, wanted = (Selection(random_region(layout, 4), blocks, part) for blocks in ((2, 0, 3), (1, 3, 0)))
    expected = content(Selection(wanted.region, (0, 1, 2, 3), wanted.region.shard))
    layers, heads = slice(part.first_layer, part.end_layer), slice(part.first_head, part.end_head)
    expected[list(wanted.blocks), layers, :, heads] = content(offered)
    with Copies() as copies, DeviceBlocks(wanted) as target:
        run = slice(0, 3)
        staged = DeviceBlocks(offered).gather(run)
        assert torch.equal(staged, content(offered).flatten())
        assert target.room(run).nbytes == offered.nbytes
        target.scatter(run, staged)
    assert copies.formats == [word, word]
    assert torch.equal(content(Selection(wanted.region, (0, 1, 2, 3), wanted.region.shard)), expected)
