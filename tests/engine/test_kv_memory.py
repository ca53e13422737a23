"""KV memory: what a transport sees of it."""

import pytest
import torch

from distserve_worker.engine.interface import BlockRef, KvLayout
from distserve_worker.engine.kv_memory import KvMemory, Slots

BLOCK_VALUES = 2 * 2 * 3 * 16 * 8


def _memory(dtype: torch.dtype, name: str) -> KvMemory:
    return KvMemory(KvLayout(2, 3, 8, 16, name), 4, dtype, torch.device("cpu"))


@pytest.mark.parametrize(("dtype", "name", "size"), [(torch.float32, "FP32", 4), (torch.bfloat16, "BF16", 2)])
def test_a_block_is_one_writable_buffer_of_bytes(dtype: torch.dtype, name: str, size: int) -> None:
    source, target = _memory(dtype, name), _memory(dtype, name)
    source.blocks.copy_(torch.arange(source.blocks.numel()).view_as(source.blocks))
    view = source.view((BlockRef(2, 0), BlockRef(0, 0)))
    assert view.nbytes == 2 * BLOCK_VALUES * size
    assert [buffer.format for buffer in view.buffers] == ["B", "B"]
    for stored, room in zip(view.buffers, target.view((BlockRef(1, 0), BlockRef(3, 0))).buffers, strict=True):
        assert not room.readonly
        assert room.contiguous
        room[:] = stored
    assert torch.equal(target.blocks[[1, 3]], source.blocks[[2, 0]])
    assert not target.blocks[[0, 2]].any()


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
