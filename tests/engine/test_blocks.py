"""Block accounting keeps its promises under any sequence of calls."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distserve_worker.engine.blocks import BlockManager
from distserve_worker.engine.interface import BlockRef, StaleBlocks

TOTAL = 12


class BlocksUnderAnySequence(RuleBasedStateMachine):
    """A plain model of who owns what, next to the real accounting."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(TOTAL)
        self.owned: dict[str, tuple[BlockRef, ...]] = {}
        self.pins: dict[str, int] = {}
        self.doomed: set[str] = set()
        self.given: set[BlockRef] = set()
        self.made = 0

    def _owner(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.owned)))

    def _give_back_when_unpinned(self, owner: str) -> None:
        if owner in self.doomed and not self.pins[owner]:
            del self.owned[owner], self.pins[owner]
            self.doomed.discard(owner)

    @precondition(lambda self: self.manager.free_count)
    @rule(data=st.data())
    def allocate(self, data: st.DataObject) -> None:
        owner = f"r{self.made}"
        self.made += 1
        blocks = self.manager.allocate(owner, data.draw(st.integers(1, self.manager.free_count)))
        assert not self.given.intersection(blocks), "a block came back with a generation it had before"
        self.given.update(blocks)
        self.owned[owner], self.pins[owner] = blocks, 0

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        owner = self._owner(data)
        self.manager.free(owner)
        self.doomed.add(owner)
        self._give_back_when_unpinned(owner)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        owner = self._owner(data)
        self.manager.pin(owner)
        self.pins[owner] += 1

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        owner = self._owner(data)
        self.manager.unpin(owner)
        self.pins[owner] = max(0, self.pins[owner] - 1)
        self._give_back_when_unpinned(owner)

    @rule()
    def calls_about_unknown_owners_change_nothing(self) -> None:
        self.manager.free("nobody")
        self.manager.unpin("nobody")

    @invariant()
    def no_block_has_two_owners_and_none_is_lost(self) -> None:
        indices = [block.index for blocks in self.owned.values() for block in blocks]
        assert len(indices) == len(set(indices))
        assert self.manager.free_count + len(indices) == TOTAL == self.manager.total

    @invariant()
    def only_the_blocks_held_now_pass_the_check(self) -> None:
        for owner, blocks in self.owned.items():
            assert self.manager.owns(owner)
            if owner in self.doomed:
                with pytest.raises(StaleBlocks):
                    self.manager.check(owner, blocks)
            else:
                self.manager.check(owner, blocks)
                assert self.manager.blocks_of(owner) == blocks


TestBlocksUnderAnySequence = BlocksUnderAnySequence.TestCase
TestBlocksUnderAnySequence.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_blocks_of_another_request_or_generation_are_stale() -> None:
    """B7."""
    manager = BlockManager(4)
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


def test_no_owner_gets_blocks_twice() -> None:
    manager = BlockManager(4)
    manager.allocate("owner", 1)
    with pytest.raises(AssertionError, match="owner has blocks already"):
        manager.allocate("owner", 1)


@pytest.mark.parametrize("count", [0, 5])
def test_only_free_blocks_are_given_out(count: int) -> None:
    with pytest.raises(AssertionError, match=f"{count} blocks wanted, 4 free"):
        BlockManager(4).allocate("owner", count)
