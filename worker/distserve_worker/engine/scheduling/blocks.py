"""Who holds which KV block, and what can be found in which: accounting only, no memory is touched here."""

from collections.abc import Sequence
from dataclasses import dataclass

from distserve_worker.engine.interface import BlockRef, StaleBlocks


@dataclass(slots=True)
class _Block:
    generation: int = 0
    holders: int = 0
    key: bytes | None = None  # what its content is found by


@dataclass(slots=True)
class _Holding:
    blocks: tuple[BlockRef, ...]
    pins: int = 0
    doomed: bool = False  # freed while pinned: goes back on the last unpin


class BlockManager:
    """Gives out blocks by owner and takes them back; owners share blocks whose content is the same.

    Content that is sealed outlives its holders: the block can be found until it is needed for something else, the least
    recently held first, and only after the blocks in which nothing can be found. A block's generation grows whenever
    its content is given up. A pinned owner keeps its blocks until the last `unpin`, whoever frees it meanwhile.
    """

    def __init__(self, total: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._blocks = [_Block() for _ in range(total)]
        self._blank = list(reversed(range(total)))  # the last freed is given out first: its memory is warm
        self._findable: dict[bytes, int] = {}
        self._idle: dict[int, None] = {}  # findable and held by nobody, the least recently held first
        self._holdings: dict[str, _Holding] = {}

    @property
    def total(self) -> int:
        """Blocks that exist."""
        return len(self._blocks)

    @property
    def free_count(self) -> int:
        """Blocks that nobody holds, whether or not something can be found in them."""
        return len(self._blank) + len(self._idle)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold the KV of `tokens` tokens."""
        return -(-tokens // self.block_tokens)

    def owns(self, owner: str) -> bool:
        """Whether `owner` holds blocks, also when they only wait for their last unpin."""
        return owner in self._holdings

    def find(self, keys: Sequence[bytes]) -> int:
        """How many of the leading `keys` have a block."""
        for count, key in enumerate(keys):
            if key not in self._findable:
                return count
        return len(keys)

    def cost(self, count: int, keys: Sequence[bytes] = ()) -> int:
        """Free blocks that `allocate` with the same arguments would take."""
        return count - sum(1 for key in keys if self._blocks[self._findable[key]].holders)

    def allocate(self, owner: str, count: int, keys: Sequence[bytes] = ()) -> tuple[BlockRef, ...]:
        """Give `count` blocks to an owner that has none: first those found by `keys`, then free ones.

        The caller has looked at `find`, and compared `cost` with `free_count`.
        """
        assert owner not in self._holdings, f"{owner} has blocks already"
        assert len(keys) <= count, f"{len(keys)} blocks found, {count} wanted"
        assert 0 < self.cost(count, keys) <= self.free_count, f"{count} blocks wanted, {self.free_count} free"
        found = [self._share(self._findable[key]) for key in keys]  # first, so that none of them is reused
        fresh = [self._reuse() for _ in range(count - len(keys))]
        blocks = (*found, *fresh)
        self._holdings[owner] = _Holding(blocks)
        return blocks

    def grow(self, owner: str) -> BlockRef:
        """Give `owner` one free block more."""
        holding = self._holdings[owner]
        assert not holding.doomed, f"{owner} has given its blocks up"
        assert self.free_count, "no block is free"
        block = self._reuse()
        holding.blocks = (*holding.blocks, block)
        return block

    def blocks_of(self, owner: str) -> tuple[BlockRef, ...]:
        """Blocks of `owner` in token order."""
        return self._holdings[owner].blocks

    def room_of(self, owner: str) -> int:
        """Tokens whose KV the blocks of `owner` can hold."""
        return len(self._holdings[owner].blocks) * self.block_tokens

    def seal(self, owner: str, keys: Sequence[bytes]) -> None:
        """From now on the leading blocks of `owner`, full and computed, are found by `keys`.

        Of several blocks with the same content only the first can be found.
        """
        blocks = self._holdings[owner].blocks
        assert len(keys) <= len(blocks), f"{owner} holds {len(blocks)} blocks, {len(keys)} are to be sealed"
        for ref, key in zip(blocks, keys, strict=False):
            block = self._blocks[ref.index]
            assert block.key in {None, key}, f"block {ref.index} holds something else already"
            if self._findable.setdefault(key, ref.index) == ref.index:
                block.key = key

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
        # the last block first: a block is of use only together with all that are before it
        for ref in reversed(self._holdings.pop(owner).blocks):
            block = self._blocks[ref.index]
            assert block.generation == ref.generation, f"block {ref.index} was freed twice"
            block.holders -= 1
            if not block.holders:
                self._put_away(ref.index)

    def _put_away(self, index: int) -> None:
        block = self._blocks[index]
        if block.key is None:
            block.generation += 1
            self._blank.append(index)
        else:
            self._idle[index] = None

    def _share(self, index: int) -> BlockRef:
        block = self._blocks[index]
        block.holders += 1
        self._idle.pop(index, None)
        return BlockRef(index, block.generation)

    def _reuse(self) -> BlockRef:
        index = self._blank.pop() if self._blank else self._forget_oldest()
        block = self._blocks[index]
        assert not block.holders, f"block {index} is in use"
        block.holders = 1
        return BlockRef(index, block.generation)

    def _forget_oldest(self) -> int:
        index = next(iter(self._idle))
        del self._idle[index]
        block = self._blocks[index]
        assert block.key is not None
        del self._findable[block.key]
        block.key = None
        block.generation += 1
        return index
