"""Decode admission: a whole life of blocks at once, first come first served, a bounded batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.decode_scheduler import DecodeScheduler, Waiting
from distserve_worker.engine.interface import QueueFull

BLOCKS = 10
MAX_RUNNING = 3
SIZES = st.lists(st.integers(1, BLOCKS), max_size=25)


def _queue(scheduler: DecodeScheduler, *blocks: int) -> None:
    for number, count in enumerate(blocks):
        scheduler.add(Waiting(str(number), count, tokens=10 * count))


@given(sizes=SIZES, data=st.data())
def test_every_request_ends_in_bounds_and_gets_its_blocks_in_order(sizes: list[int], data: st.DataObject) -> None:
    scheduler = DecodeScheduler(MAX_RUNNING, max_waiting=25)
    _queue(scheduler, *sizes)
    holding: set[str] = set()
    reserved: list[str] = []
    importing: list[str] = []
    ended: set[str] = set()
    while len(ended) < len(sizes):
        free = BLOCKS - sum(sizes[int(request_id)] for request_id in holding)
        assert free >= 0
        can_reserve = scheduler.can_reserve(free)
        taken = [waiting.request_id for waiting in scheduler.reserve(free)]
        assert can_reserve == bool(taken)
        holding.update(taken)
        reserved += taken
        importing += taken
        for request_id in importing[: data.draw(st.integers(0 if scheduler.running else 1, MAX_RUNNING))]:
            scheduler.imported(request_id)
            importing.remove(request_id)
        can_run = scheduler.can_run()
        batch = scheduler.batch()
        assert can_run == bool(batch)
        assert len(batch) <= MAX_RUNNING
        assert not set(batch).intersection(importing)
        for request_id in batch[: data.draw(st.integers(0 if importing else 1, MAX_RUNNING))]:
            scheduler.remove(request_id)
            holding.remove(request_id)
            ended.add(request_id)
    assert reserved == [str(number) for number in range(len(sizes))]
    assert (scheduler.waiting, scheduler.running, scheduler.queued_tokens) == (0, (), 0)


def test_the_head_of_the_queue_waits_for_blocks_and_nobody_overtakes() -> None:
    scheduler = DecodeScheduler(MAX_RUNNING, max_waiting=10)
    _queue(scheduler, 2, 9, 1)
    assert [waiting.request_id for waiting in scheduler.reserve(BLOCKS)] == ["0"]
    assert not scheduler.can_reserve(BLOCKS - 2)


def test_a_slow_import_holds_up_nobody() -> None:
    scheduler = DecodeScheduler(MAX_RUNNING, max_waiting=10)
    _queue(scheduler, 1, 1)
    scheduler.reserve(BLOCKS)
    scheduler.imported("1")
    assert scheduler.batch() == ("1",)


def test_imported_requests_join_in_order_of_arrival_when_there_is_room() -> None:
    scheduler = DecodeScheduler(max_running=2, max_waiting=10)
    _queue(scheduler, 1, 1, 1, 1)
    scheduler.reserve(BLOCKS)
    for request_id in ("3", "1", "2", "0"):
        scheduler.imported(request_id)
    assert scheduler.batch() == ("0", "1")
    scheduler.remove("0")
    assert scheduler.batch() == ("1", "2")


def test_a_request_can_be_removed_at_every_stage() -> None:
    scheduler = DecodeScheduler(MAX_RUNNING, max_waiting=10)
    _queue(scheduler, 1, 1, 8, 1)
    scheduler.reserve(free_blocks=2)
    scheduler.imported("0")
    scheduler.batch()
    for request_id in ("0", "1", "3", "unknown"):
        scheduler.remove(request_id)
    assert (scheduler.running, scheduler.waiting, scheduler.queued_tokens) == ((), 1, 80)
    assert [waiting.request_id for waiting in scheduler.reserve(BLOCKS)] == ["2"]


def test_the_queue_is_bounded() -> None:
    scheduler = DecodeScheduler(MAX_RUNNING, max_waiting=1)
    _queue(scheduler, 1)
    with pytest.raises(QueueFull, match="1 requests wait for decode"):
        scheduler.add(Waiting("1", 1, 1))
    assert scheduler.queued_tokens == 10
