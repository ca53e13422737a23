"""Memory of one process that another maps: only while the offer stands, only inside one pod, gone with its owner."""

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distserve_testing.endings import Ending
from distserve_testing.regions import random_region

from distserve_worker.engine.interface import KvLayout, KvShard
from distserve_worker.transfer.interface import Fault, TransferError
from distserve_worker.transfer.memory.host import Bytes
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.same_pod.board import Board, BoardView
from distserve_worker.transfer.same_pod.location import Location
from distserve_worker.transfer.shm.pulling import shm_pulling
from distserve_worker.transfer.shm.serving import ShmServing
from distserve_worker.transfer.tickets import TICKET_BYTES

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
TICKET, OTHER = b"a" * TICKET_BYTES, b"b" * TICKET_BYTES


def soon() -> float:
    return time.monotonic() + 20


def test_an_offer_stands_on_the_board_until_it_is_taken_down() -> None:
    """B6."""
    board = Board(2)
    view = BoardView(board.file)
    slot = board.post(TICKET, soon())
    assert view.stands(slot, TICKET)
    assert not view.stands(slot, OTHER)
    assert not view.stands(1 - slot, TICKET)
    assert not view.stands(10_000, TICKET)
    assert board.take_down(slot) is False
    assert not view.take(slot, TICKET)
    board.close()


def test_an_offer_is_taken_once() -> None:
    """B7."""
    board = Board(1)
    view, other = BoardView(board.file), BoardView(board.file)
    slot = board.post(TICKET, soon())
    assert view.take(slot, TICKET)
    assert not other.take(slot, TICKET)
    assert board.take_down(slot) is True
    board.close()


def test_an_offer_does_not_outlast_its_deadline_on_the_board() -> None:
    """B6: whether or not its owner gets to look at the clock."""
    board = Board(1)
    slot = board.post(TICKET, time.monotonic())
    assert not BoardView(board.file).stands(slot, TICKET)
    board.close()


def test_who_takes_an_old_offer_does_not_touch_the_next_one_in_its_place() -> None:
    """B7."""
    board = Board(1)
    view = BoardView(board.file)
    old = board.post(TICKET, soon())
    board.take_down(old)
    new = board.post(OTHER, soon())
    assert new == old
    assert not view.take(old, TICKET)
    assert view.take(new, OTHER)
    board.close()


def test_what_changes_under_the_reader_is_never_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """B6, B7: the offer is withdrawn and its blocks are used anew between the copies of two blocks."""
    served, region = random_region(LAYOUT, 2), random_region(LAYOUT, 2)
    with contextlib.closing(ShmServing(served, 4)) as serving, contextlib.closing(shm_pulling()) as pulling:
        assert pulling.try_(serving.probe, soon())
        ending = Ending()
        source = serving.offer(Selection(served, (0, 1), served.shard), soon(), ending)

        def copied_late(target: Bytes, stored: Bytes) -> None:
            np.copyto(target, stored)
            serving.withdraw(source.ticket)
            served.memory.zero_()

        monkeypatch.setattr("distserve_worker.transfer.shm.pulling.np", SimpleNamespace(copyto=copied_late))
        with pytest.raises(TransferError, match="while it was read") as error:
            pulling.begin(source, Selection(region, (0, 1), region.shard), soon()).run()
        assert error.value.fault is Fault.REFUSED
        assert ending.wait() is not None


def test_a_serving_process_that_is_gone_is_let_go_of() -> None:
    """B8: its memory is not kept alive by those who read from it once."""
    served = random_region(LAYOUT, 2)
    first, second = ShmServing(served, 4), ShmServing(served, 4)
    with contextlib.closing(shm_pulling()) as pulling, contextlib.closing(second):
        assert pulling.try_(first.probe, soon())
        source = first.offer(Selection(served, (0,), served.shard), soon(), Ending())
        first.close()
        assert pulling.try_(second.probe, soon())
        with pytest.raises(TransferError) as error:
            pulling.begin(source, Selection(random_region(LAYOUT, 2), (0,), served.shard), soon()).run()
        assert error.value.fault is Fault.UNREACHABLE


def test_a_location_or_a_shape_that_does_not_fit_is_a_mismatch() -> None:
    """B4: whatever a peer says, nothing outside its memory is read."""
    served, region = random_region(LAYOUT, 2), random_region(LAYOUT, 2)
    with contextlib.closing(ShmServing(served, 4)) as serving, contextlib.closing(shm_pulling()) as pulling:
        assert pulling.try_(serving.probe, soon())
        source = serving.offer(Selection(served, (0,), served.shard), soon(), Ending())
        whole, half = served.shard, KvShard(0, 2, 0, 1)
        wrong = [Location(0, whole, ()), Location(0, whole, (2,)), Location(0, whole, (0, 1)), Location(0, half, (0,))]
        for location in (b"", b"abc", *(one.packed() for one in wrong)):
            target = Selection(region, (0,), region.shard)
            with pytest.raises(TransferError) as error:
                pulling.begin(replace(source, location=location), target, soon()).run()
            assert error.value.fault is Fault.MISMATCH


_TRY = """
import sys, time
from distserve_worker.transfer.shm.pulling import shm_pulling
sys.exit(0 if shm_pulling().try_(sys.argv[1].encode(), time.monotonic() + 20) else 7)
"""


def _tried(serving: ShmServing, *before: str, **options: Any) -> int:
    command = [*before, sys.executable, "-c", _TRY, serving.probe.decode()]
    return subprocess.run(command, check=False, timeout=60, **options).returncode


def test_only_processes_of_the_same_pod_and_user_get_the_memory() -> None:
    """Two pods have two network namespaces, and take another transport then."""
    with contextlib.closing(ShmServing(random_region(LAYOUT, 2), 4)) as serving:
        assert _tried(serving) == 0
        if subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode == 0:
            assert _tried(serving, "unshare", "-rn") == 7
        if os.getuid() == 0 and os.access(sys.executable, os.X_OK):
            assert _tried(serving, "setpriv", "--reuid", "65534", "--clear-groups") != 0


def test_an_offer_that_finds_no_slot_harms_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots of offers that end become free a moment after their tickets."""
    served = random_region(LAYOUT, 1)
    selection, ending, refused = Selection(served, (0,), served.shard), Ending(), Ending()

    def full(*_: object) -> int:
        raise TransferError(Fault.BUSY, "the board of offers is full")

    with contextlib.closing(ShmServing(served, 1)) as serving:
        with monkeypatch.context() as patch:
            patch.setattr(Board, "post", full)
            with pytest.raises(TransferError, match="board of offers is full"):
                serving.offer(selection, soon(), refused)
        source = serving.offer(selection, soon(), ending)
        serving.withdraw(source.ticket)
        assert ending.wait() is not None
        assert not refused.calls
