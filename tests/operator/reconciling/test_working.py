"""Passes run side by side."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from distserve_operator.cluster.caching import Key
from distserve_operator.cluster.errors import ApiUnreachableError
from distserve_operator.reconciling.passing import Outcome
from distserve_operator.reconciling.work_queue import WorkQueue
from distserve_operator.reconciling.working import work

WAIT_SECONDS = 20


class Passes:
    """Stands for the reconciler: keys called `slow` have a gateway that does not answer, `broken` ones fail."""

    def __init__(self) -> None:
        self.acting = self.most_acting = 0
        self.asking: asyncio.Queue[Key] = asyncio.Queue()
        self.reported: asyncio.Queue[Key] = asyncio.Queue()

    async def act(self, key: Key) -> Any:
        self.acting += 1
        self.most_acting = max(self.most_acting, self.acting)
        await asyncio.sleep(0)
        self.acting -= 1
        if key[1].startswith("broken"):
            raise ApiUnreachableError("no answer")
        return key

    async def report(self, acted: Any) -> Outcome:
        if acted[1].startswith("slow"):
            self.asking.put_nowait(acted)
            await asyncio.Event().wait()
        self.reported.put_nowait(acted)
        return Outcome()


@asynccontextmanager
async def at_work(queue: WorkQueue[Key], passes: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work(queue, passes))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_gateways_that_do_not_answer_keep_no_other_deployment_waiting() -> None:
    queue, passes = WorkQueue[Key](), Passes()
    async with at_work(queue, passes):
        for i in range(50):
            queue.add(("ns", f"slow{i}"))
        for _ in range(50):
            await passes.asking.get()
        queue.add(("ns", "chat"))
        assert await passes.reported.get() == ("ns", "chat")
    assert passes.most_acting <= 4


async def test_a_pass_that_fails_is_tried_again_and_gives_its_turn_back() -> None:
    queue, passes = WorkQueue[Key](), Passes()
    async with at_work(queue, passes):
        for i in range(20):
            queue.add(("ns", f"broken{i}"))
        queue.add(("ns", "chat"))
        assert await passes.reported.get() == ("ns", "chat")
        assert queue.longest_pass() == 0
        assert queue.retry(("ns", "broken0")) == 1, "the first delay has been used"
