"""Prefill batches: first come first served, up to L_m new tokens, within the free blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.interface import QueueFull
from distserve_worker.engine.prefill_scheduler import PrefillScheduler, Waiting

L_M = 100
BLOCKS = 20
REQUESTS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, BLOCKS)), max_size=30)


def _queue(scheduler: PrefillScheduler, *requests: tuple[int, int]) -> None:
    for number, (tokens, blocks) in enumerate(requests):
        scheduler.add(Waiting(str(number), tokens, blocks))


@given(requests=REQUESTS, data=st.data())
def test_every_request_runs_once_in_order_and_within_bounds(
    requests: list[tuple[int, int]], data: st.DataObject
) -> None:
    scheduler = PrefillScheduler(L_M, max_waiting=30)
    _queue(scheduler, *requests)
    ran: list[int] = []
    parked: list[int] = []
    while len(ran) < len(requests):
        free = BLOCKS - sum(requests[number][1] for number in parked)
        can_run = scheduler.can_run(free)
        batch = [int(request_id) for request_id in scheduler.next_batch(free)]
        assert can_run == bool(batch)
        assert sum(requests[number][1] for number in batch) <= free
        assert len(batch) == 1 or sum(requests[number][0] for number in batch) <= L_M
        ran += batch
        parked += batch
        assert scheduler.queued_tokens == sum(tokens for tokens, _ in requests[len(ran) :])
        # a request is pulled now or later, but when nothing runs something must be
        leaving = data.draw(st.integers(0 if batch else 1, len(parked)))
        parked = parked[leaving:]
    assert ran == list(range(len(requests)))
    assert scheduler.next_batch(BLOCKS) == ()


def test_a_batch_is_as_full_as_order_allows() -> None:
    scheduler = PrefillScheduler(L_M, max_waiting=10)
    _queue(scheduler, (40, 1), (60, 1), (1, 1))
    assert scheduler.next_batch(BLOCKS) == ("0", "1")


def test_a_prompt_longer_than_a_batch_runs_alone() -> None:
    scheduler = PrefillScheduler(L_M, max_waiting=10)
    _queue(scheduler, (10, 1), (101, 1), (10, 1))
    assert [scheduler.next_batch(BLOCKS) for _ in range(3)] == [("0",), ("1",), ("2",)]


def test_a_small_request_does_not_overtake_one_that_waits_for_blocks() -> None:
    scheduler = PrefillScheduler(L_M, max_waiting=10)
    _queue(scheduler, (10, 5), (10, 1))
    assert not scheduler.can_run(free_blocks=4)
    assert scheduler.next_batch(free_blocks=4) == ()


def test_a_removed_request_never_runs() -> None:
    scheduler = PrefillScheduler(L_M, max_waiting=10)
    _queue(scheduler, (10, 1), (20, 1), (30, 1))
    scheduler.remove("1")
    scheduler.remove("unknown")
    assert (len(scheduler), scheduler.queued_tokens) == (2, 40)
    assert scheduler.next_batch(BLOCKS) == ("0", "2")


def test_the_queue_is_bounded() -> None:
    scheduler = PrefillScheduler(L_M, max_waiting=2)
    _queue(scheduler, (1, 1), (1, 1))
    with pytest.raises(QueueFull, match="2 requests wait for prefill"):
        scheduler.add(Waiting("2", 1, 1))
    assert scheduler.queued_tokens == 2
