"""A bounded number of transfers uses a GPU at once; one more waits for as long as its limit lets it."""

from contextlib import ExitStack

import pytest

from distserve_worker.engine.interface import CHUNK_BYTES, MOST_STAGED
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.turns import Turns


class Patience:
    """Ends at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def check(self) -> None:
        self.looks += 1
        if self.looks == 3:
            raise TransferError(Fault.STALLED, "too slow")


def test_one_more_than_the_bound_waits_until_its_limit() -> None:
    turns, patience = Turns(), Patience()
    with ExitStack() as stack:
        for _ in range(MOST_STAGED):
            stack.enter_context(turns.one(lambda: None))
        with pytest.raises(TransferError) as raised, turns.one(patience.check):
            pass
    assert raised.value.fault is Fault.STALLED
    assert patience.looks == 3


def test_a_turn_ends_with_whatever_was_done_under_it() -> None:
    turns = Turns(most=1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turns.one(lambda: None):
            _ = 1 // 0


def test_a_transfer_that_is_over_before_its_turn_takes_none() -> None:
    turns, patience = Turns(most=1), Patience()
    patience.looks = 2
    with pytest.raises(TransferError), turns.one(patience.check):
        pass
    with turns.one(lambda: None):
        pass


def test_what_is_staged_in_one_direction_is_half_a_gibibyte() -> None:
    """As `engine/work_memory` counts it, twice."""
    assert MOST_STAGED * CHUNK_BYTES == 1 << 29
