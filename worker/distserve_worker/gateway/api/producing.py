"""Joins the runs of a request with the client that reads them: text as it appears, an end when the client leaves."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any

from starlette.types import Receive

from distserve_worker.gateway.answer import Answer, Piece
from distserve_worker.gateway.api.receiving import ClientGoneError, until_gone


async def pieces(
    runs: Sequence[Coroutine[Any, Any, None]], answers: Sequence[Answer], changed: asyncio.Event
) -> AsyncGenerator[tuple[int, Piece]]:
    """What `runs` add to their `answers`, each with its index; what a slow reader has missed comes in one piece.

    Raises what the first run to fail raises, after all that came before. Closing the iterator cancels the runs.
    """
    running = [asyncio.create_task(run) for run in runs]
    for task in running:
        task.add_done_callback(lambda _: changed.set())
    try:
        over = False
        while not over:
            await changed.wait()
            changed.clear()
            # looked at before the pieces are handed on: what is added meanwhile is taken in the next round
            ended = [task for task in running if task.done()]
            over = len(ended) == len(running)
            for index, answer in enumerate(answers):
                if (piece := answer.take()) is not None:
                    yield index, piece
            for task in ended:
                task.result()
    finally:
        await _end(*running)


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
