"""Whose turn it is."""

import asyncio

import pytest

from distserve_operator.reconciling.work_queue import WorkQueue


async def test_a_key_that_is_added_often_is_taken_once() -> None:
    queue = WorkQueue[str]()
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add("c")
    assert await waiting == "c"


async def test_a_key_at_work_is_not_given_to_a_second_worker() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.take()
    queue.add("a")
    second = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not second.done()
    queue.done("a")
    assert await second == "a"


async def test_nothing_added_during_a_pass_is_lost_or_doubled() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.take()
    queue.add("a")
    queue.add("a")
    queue.done("a")
    assert await queue.take() == "a"
    queue.done("a")
    third = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not third.done()
    third.cancel()


async def test_a_failed_key_comes_back_by_itself_with_growing_delays() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert [queue.retry("a") for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    queue.succeeded("a")
    assert queue.retry("a") == 0.5


async def test_a_timer_rings_and_the_earliest_wins() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.01)
    queue.add_after("a", 7200)
    async with asyncio.timeout(10):
        assert await queue.take() == "a"


async def test_taking_a_key_cancels_its_timer() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 0.01)
    queue.add("a")
    assert await queue.take() == "a"
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await queue.take()


async def test_a_pass_that_hangs_is_seen() -> None:
    queue = WorkQueue[str]()
    assert queue.longest_pass() == 0
    queue.add("a")
    await queue.take()
    await asyncio.sleep(0.01)
    assert queue.longest_pass() > 0
    queue.done("a")
    assert queue.longest_pass() == 0
