"""A function in a process of its own: its result, and every way in which there is none."""

import asyncio
import os
from contextlib import suppress
from typing import Any

import psutil
import pytest
from distserve_testing.clusters import survivors, until
from distserve_testing.searches import crash, echo, fail, hang, leave, process_id

from distserve_operator.reconciling.isolating import IsolatedError, run_isolated

SECONDS = 120.0  # only bounds a failing test


async def child() -> psutil.Process:
    """The process once it runs."""

    def found() -> psutil.Process | None:
        for each in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):  # also of what other tests have killed and nobody has waited for
                if "spawn_main" in " ".join(each.cmdline()):
                    return each
        return None

    return await asyncio.to_thread(until, found, "the process runs")


async def test_the_result_comes_from_another_process() -> None:
    assert await run_isolated(process_id, None, SECONDS) != os.getpid()


@pytest.mark.parametrize("value", [None, False, {"a": [1, "ü"]}, "x" * 1_000_000])
async def test_any_result_arrives_as_it_is(value: object) -> None:
    assert await run_isolated(echo, value, SECONDS) == value


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fail, "ValueError: no such figure"),
        (crash, "ended by SIGKILL, perhaps for lack of memory"),
        (leave, "ended with exit code 3"),
    ],
)
async def test_every_other_end_is_told(function: Any, message: str) -> None:
    with pytest.raises(IsolatedError, match=message):
        await run_isolated(function, "no such figure", SECONDS)


async def test_what_takes_too_long_is_killed() -> None:
    running = asyncio.create_task(run_isolated(hang, None, 2.0))
    process = await child()
    with pytest.raises(IsolatedError, match="not done within 2 s"):
        await running
    assert not survivors([process])


async def test_what_nobody_waits_for_any_more_is_killed() -> None:
    running = asyncio.create_task(run_isolated(hang, None, SECONDS))
    process = await child()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert running.cancelled()
    assert not survivors([process])


async def test_the_event_loop_goes_on_meanwhile() -> None:
    """The search never stalls passes and probes."""
    running = asyncio.create_task(run_isolated(hang, None, SECONDS))
    await child()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
