"""Joins the run of a request with the client that reads it: text as it appears, and an end when the client leaves."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from starlette.types import Receive

from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.api.receiving import ClientGoneError, until_gone


async def texts(run: Coroutine[Any, Any, None], answer: Answer, changed: asyncio.Event) -> AsyncGenerator[str]:
    """Text that `run` adds to `answer`, from the first token on; what a slow reader has missed comes in one piece.

    Raises what `run` raises, after the text before it. Closing the iterator cancels the run.
    """
    running = asyncio.create_task(run)
    running.add_done_callback(lambda _: changed.set())
    try:
        while not running.done():
            await changed.wait()
            changed.clear()
            if answer.tokens:
                yield answer.take()
        if rest := answer.take():
            yield rest
        running.result()
    finally:
        await _end(running)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do `work`, or cancel it and raise `ClientGoneError` as soon as the client closes the connection."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        working.result()
    finally:
        await _end(working, leaving)


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
