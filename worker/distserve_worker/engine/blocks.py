"""Who owns which KV block: accounting only, no memory is touched here."""

from collections.abc import Sequence
from dataclasses import dataclass

from distserve_worker.engine.interface import BlockRef, StaleBlocks


@dataclass(slots=True)
class _Holding:
    blocks: tuple[BlockRef, ...]
    pins: int = 0
    doomed: bool = False  # freed while pinned: goes back on the last unpin


class BlockManager:
    """Gives out blocks by owner and takes them back; a block's generation grows each time it is freed.

    A pinned owner keeps its blocks until the last `unpin`, whoever frees it meanwhile.
    """

    def __init__(self, total: int) -> None:
        self._generations = [0] * total
        self._free = list(reversed(range(total)))  # the last freed is given out first: its memory is warm
        self._holdings: dict[str, _Holding] = {}

    @property
    def total(self) -> int:
        """Blocks that exist."""
        return len(self._generations)

    @property
    def free_count(self) -> int:
        """Blocks that `allocate` can give out now."""
        return len(self._free)

    def owns(self, owner: str) -> bool:
        """Whether `owner` holds blocks, also when they only wait for their last unpin."""
        return owner in self._holdings

    def allocate(self, owner: str, count: int) -> tuple[BlockRef, ...]:
        """Give `count` free blocks to an owner that has none; the caller has looked at `free_count`."""
        assert owner not in self._holdings, f"{owner} has blocks already"
        assert 0 < count <= len(self._free), f"{count} blocks wanted, {len(self._free)} free"
        indices = [self._free.pop() for _ in range(count)]
        blocks = tuple(BlockRef(index, self._generations[index]) for index in indices)
        self._holdings[owner] = _Holding(blocks)
        return blocks

    def blocks_of(self, owner: str) -> tuple[BlockRef, ...]:
        """Blocks of `owner` in token order."""
        return self._holdings[owner].blocks

    def check(self, owner: str, blocks: Sequence[BlockRef]) -> None:
        """Raise `StaleBlocks` unless `owner` still holds exactly `blocks`."""
        holding = self._holdings.get(owner)
        if holding is None or holding.doomed:
            raise StaleBlocks(f"request {owner} holds no blocks here: they were released, cancelled or never made")
        if tuple(blocks) != holding.blocks:
            raise StaleBlocks(f"the blocks named for request {owner} are not those it holds")

    def pin(self, owner: str) -> None:
        """Keep the blocks of `owner` where they are until one more `unpin`."""
        self._holdings[owner].pins += 1

    def unpin(self, owner: str) -> None:
        """Take one pin away; the last one frees blocks that were freed meanwhile. Without a pin nothing happens."""
        holding = self._holdings.get(owner)
        if holding is None or not holding.pins:
            return
        holding.pins -= 1
        if holding.doomed and not holding.pins:
            self._give_back(owner)

    def free(self, owner: str) -> None:
        """Take the blocks of `owner` back, at once or on the last unpin. Unknown owners are ignored."""
        holding = self._holdings.get(owner)
        if holding is None:
            return
        holding.doomed = True
        if not holding.pins:
            self._give_back(owner)

    def _give_back(self, owner: str) -> None:
        for block in self._holdings.pop(owner).blocks:
            assert self._generations[block.index] == block.generation, f"block {block.index} was freed twice"
            self._generations[block.index] += 1
            self._free.append(block.index)
        assert len(self._free) <= self.total
