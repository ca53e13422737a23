"""KV memory: what a transport sees of it, and what a step does to it."""

import mmap
import os

import pytest
import torch

from distserve_worker.engine.interface import KvLayout, KvShard
from distserve_worker.engine.kv_memory import KvMemory, Slots

WHOLE = KvShard(0, 2, 0, 3)
BLOCK_VALUES = 2 * 2 * 3 * 16 * 8


def _memory(dtype: torch.dtype, name: str) -> KvMemory:
    return KvMemory(KvLayout(2, 3, 8, 16, name), 4, dtype, torch.device("cpu"))


@pytest.mark.parametrize(("dtype", "name", "size"), [(torch.float32, "FP32", 4), (torch.bfloat16, "BF16", 2)])
def test_a_region_is_the_same_memory_as_bytes(dtype: torch.dtype, name: str, size: int) -> None:
    source, target = _memory(dtype, name), _memory(dtype, name)
    source.blocks.copy_(torch.arange(source.blocks.numel()).view_as(source.blocks))
    stored, room = source.region(WHOLE), target.region(WHOLE)
    assert stored.layout.block_bytes == BLOCK_VALUES * size
    assert stored.memory.shape == (4, BLOCK_VALUES * size)
    room.memory[[1, 3]] = stored.memory[[2, 0]]
    assert torch.equal(target.blocks[[1, 3]], source.blocks[[2, 0]])
    assert not target.blocks[[0, 2]].any()


def test_the_file_of_a_region_is_its_memory() -> None:
    """So another process that maps it sees what steps write; it cannot be cut short under that process."""
    memory = _memory(torch.float32, "FP32")
    region = memory.region(WHOLE)
    assert region.file is not None
    memory.blocks.copy_(torch.arange(memory.blocks.numel()).view_as(memory.blocks))
    with mmap.mmap(region.file, 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == region.memory.numpy().tobytes()
    with pytest.raises(PermissionError):
        os.ftruncate(region.file, 0)


def test_new_tokens_are_stored_in_their_slots_and_nowhere_else() -> None:
    memory = _memory(torch.float32, "FP32")
    key, value = torch.ones(2, 3, 8), torch.full((2, 3, 8), 2.0)
    memory.write(1, Slots(torch.tensor([3, 0]), torch.tensor([5, 15])), key, value)
    for block, place in ((3, 5), (0, 15)):
        assert torch.equal(memory.blocks[block, 1, 0, :, place], key[0])
        assert torch.equal(memory.blocks[block, 1, 1, :, place], value[0])
        memory.blocks[block, 1, :, :, place] = 0
    assert not memory.blocks.any()


def test_clearing_zeroes_whole_blocks_only() -> None:
    memory = _memory(torch.float32, "FP32")
    memory.blocks.fill_(torch.nan)
    memory.clear([1, 2])
    assert not memory.blocks[1:3].any()
    assert memory.blocks[[0, 3]].isnan().all()
