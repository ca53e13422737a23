"""Block accounting keeps its promises under any sequence of calls."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distserve_worker.engine.interface import BlockRef, StaleBlocks
from distserve_worker.engine.scheduling.blocks import BlockManager

TOTAL = 8
TEXTS = tuple(tuple(bytes([text, place]) for place in range(4)) for text in range(3))


class BlocksUnderAnySequence(RuleBasedStateMachine):
    """A plain model of who holds what and what can be found, next to the real accounting."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(TOTAL, 16)
        self.held: dict[str, tuple[BlockRef, ...]] = {}
        self.text: dict[str, Sequence[bytes]] = {}
        self.pins: Counter[str] = Counter()
        self.doomed: set[str] = set()
        self.content: dict[BlockRef, bytes] = {}  # of sealed blocks, for ever: a generation has one content
        self.made = 0
        self.fresh: set[BlockRef] = set()  # ever given out for new content

    def _owner(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.held)))

    def _living(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(set(self.held) - self.doomed)))

    def _settle(self, owner: str) -> None:
        if owner in self.doomed and not self.pins[owner]:
            del self.held[owner], self.text[owner]
            self.doomed.discard(owner)

    def _note_fresh(self, blocks: Sequence[BlockRef]) -> None:
        assert not self.fresh.intersection(blocks), "content was given up without a new generation"
        self.fresh.update(blocks)

    @precondition(lambda self: self.manager.free_count)
    @rule(text=st.sampled_from(TEXTS), data=st.data())
    def allocate(self, text: Sequence[bytes], data: st.DataObject) -> None:
        owner = f"r{self.made}"
        self.made += 1
        keys = text[: self.manager.find(text)]
        count = data.draw(st.integers(max(1, len(keys)), 4))
        if not 0 < self.manager.cost(count, keys) <= self.manager.free_count:
            return
        free = self.manager.free_count - self.manager.cost(count, keys)
        blocks = self.manager.allocate(owner, count, keys)
        assert self.manager.free_count == free
        assert [self.content[block] for block in blocks[: len(keys)]] == list(keys)
        self._note_fresh(blocks[len(keys) :])
        self.held[owner], self.text[owner] = blocks, text

    @precondition(lambda self: self.manager.free_count and set(self.held) - self.doomed)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        owner = self._living(data)
        block = self.manager.grow(owner)
        self._note_fresh([block])
        self.held[owner] += (block,)

    @precondition(lambda self: set(self.held) - self.doomed)
    @rule(data=st.data())
    def seal(self, data: st.DataObject) -> None:
        owner = self._living(data)
        keys = self.text[owner][: data.draw(st.integers(0, len(self.held[owner])))]
        findable_before = {key: self.manager.find([key]) for key in keys}
        self.manager.seal(owner, keys)
        assert self.manager.find(keys) == len(keys)
        for block, key in zip(self.held[owner], keys, strict=False):
            if not findable_before[key]:
                assert self.content.setdefault(block, key) == key

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        owner = self._owner(data)
        self.manager.free(owner)
        self.doomed.add(owner)
        self._settle(owner)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        owner = self._owner(data)
        self.manager.pin(owner)
        self.pins[owner] += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        owner = self._owner(data)
        self.manager.unpin(owner)
        self.pins[owner] = max(0, self.pins[owner] - 1)
        self._settle(owner)

    @rule()
    def calls_about_unknown_owners_change_nothing(self) -> None:
        self.manager.free("nobody")
        self.manager.unpin("nobody")

    @invariant()
    def every_block_is_held_or_free_and_only_sealed_ones_are_shared(self) -> None:
        holders = Counter(block for blocks in self.held.values() for block in blocks)
        assert len({block.index for block in holders}) == len(holders)
        assert len(holders) + self.manager.free_count == TOTAL == self.manager.total
        assert all(count == 1 or block in self.content for block, count in holders.items())

    @invariant()
    def only_the_blocks_held_now_pass_the_check(self) -> None:
        for owner, blocks in self.held.items():
            assert self.manager.owns(owner)
            assert self.manager.blocks_of(owner) == blocks
            if owner in self.doomed:
                with pytest.raises(StaleBlocks):
                    self.manager.check(owner, blocks)
            else:
                self.manager.check(owner, blocks)

    def teardown(self) -> None:
        for owner in list(self.held):
            self.manager.free(owner)
            for _ in range(self.pins[owner]):
                self.manager.unpin(owner)
        assert self.manager.free_count == TOTAL
        self.manager.allocate("all", TOTAL)


TestBlocksUnderAnySequence = BlocksUnderAnySequence.TestCase
TestBlocksUnderAnySequence.settings = settings(max_examples=60, stateful_step_count=40)


def _keys(text: str) -> list[bytes]:
    return [text[: place + 1].encode() for place in range(len(text))]


def _sealed(manager: BlockManager, owner: str, text: str) -> tuple[BlockRef, ...]:
    blocks = manager.allocate(owner, len(text))
    manager.seal(owner, _keys(text))
    return blocks


def test_blocks_of_another_request_or_generation_are_stale() -> None:
    """B7."""
    manager = BlockManager(4, 16)
    first = manager.allocate("first", 2)
    other = manager.allocate("other", 2)
    manager.free("first")
    again = manager.allocate("again", 2)
    assert {block.index for block in again} == {block.index for block in first}
    for owner, blocks in [
        ("first", first),
        ("again", first),
        ("again", other),
        ("again", again[:1]),
        ("nobody", again),
    ]:
        with pytest.raises(StaleBlocks):
            manager.check(owner, blocks)


def test_a_generation_lasts_as_long_as_the_content() -> None:
    """B7."""
    manager = BlockManager(3, 16)
    first = _sealed(manager, "first", "ab")
    manager.free("first")
    assert manager.allocate("same text", 2, _keys("ab")) == first
    manager.free("same text")
    others = manager.allocate("another text", 3)
    assert manager.find(_keys("ab")) == 0
    assert {block.generation for block in others if block.index in {block.index for block in first}} == {1}


def test_what_cannot_be_found_is_reused_first_and_then_the_least_recently_held_from_its_end() -> None:
    manager = BlockManager(6, 16)
    _sealed(manager, "old", "ab")
    _sealed(manager, "new", "xy")
    manager.free("old")
    manager.free("new")
    manager.allocate("blank", 2)
    assert (manager.find(_keys("ab")), manager.find(_keys("xy"))) == (2, 2)
    for left in [(1, 2), (0, 2), (0, 1), (0, 0)]:
        manager.grow("blank")
        assert (manager.find(_keys("ab")), manager.find(_keys("xy"))) == left


def test_what_is_held_again_is_reused_last() -> None:
    manager = BlockManager(4, 16)
    _sealed(manager, "old", "a")
    _sealed(manager, "new", "x")
    manager.free("old")
    manager.free("new")
    manager.allocate("again", 2, _keys("a"))
    manager.free("again")
    manager.allocate("other", 3)
    assert (manager.find(_keys("a")), manager.find(_keys("x"))) == (1, 0)


def test_shared_blocks_are_free_when_nobody_holds_them_any_more() -> None:
    manager = BlockManager(4, 16)
    first = _sealed(manager, "first", "ab")
    assert manager.cost(3, _keys("ab")) == 1
    assert manager.allocate("second", 3, _keys("ab"))[:2] == first
    manager.free("first")
    assert manager.free_count == 1
    manager.free("second")
    assert manager.free_count == 4


def test_of_two_blocks_with_the_same_content_one_is_found_and_the_other_reused_first() -> None:
    manager = BlockManager(2, 16)
    (first,) = _sealed(manager, "first", "a")
    (second,) = _sealed(manager, "second", "a")
    manager.free("second")
    manager.free("first")
    (third,) = manager.allocate("third", 1)
    assert third.index == second.index
    assert manager.allocate("fourth", 1, _keys("a")) == (first,)


def test_a_pinned_owner_keeps_shared_and_own_blocks() -> None:
    manager = BlockManager(4, 16)
    _sealed(manager, "first", "ab")
    manager.allocate("second", 3, _keys("ab"))
    manager.pin("second")
    manager.free("first")
    manager.free("second")
    assert manager.free_count == 1
    manager.unpin("second")
    assert manager.free_count == 4


def test_blocks_are_counted_in_tokens_too() -> None:
    manager = BlockManager(4, 16)
    manager.allocate("owner", 2)
    assert [manager.blocks_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert manager.room_of("owner") == 32


def test_misuse_is_noticed() -> None:
    manager = BlockManager(4, 16)
    _sealed(manager, "owner", "ab")
    with pytest.raises(AssertionError, match="owner has blocks already"):
        manager.allocate("owner", 1)
    with pytest.raises(AssertionError, match="2 blocks found, 1 wanted"):
        manager.allocate("other", 1, _keys("ab"))
    with pytest.raises(AssertionError, match="holds something else"):
        manager.seal("owner", [b"other"])
    with pytest.raises(AssertionError, match="3 are to be sealed"):
        manager.seal("owner", _keys("abc"))
    manager.grow("owner")
    manager.grow("owner")
    with pytest.raises(AssertionError, match="no block is free"):
        manager.grow("owner")
    manager.pin("owner")
    manager.free("owner")
    with pytest.raises(AssertionError, match="has given its blocks up"):
        manager.grow("owner")


@pytest.mark.parametrize("count", [0, 5])
def test_only_free_blocks_are_given_out(count: int) -> None:
    with pytest.raises(AssertionError, match=f"{count} blocks wanted, 4 free"):
        BlockManager(4, 16).allocate("owner", count)
