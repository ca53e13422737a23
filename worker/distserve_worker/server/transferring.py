"""Runs the transfers of one pull side by side: all of them succeed, or all of them end."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from distserve_worker.transfer.interface import Fault, Transfer, TransferError


async def run_all(transfers: Sequence[Transfer], threads: Executor) -> None:
    """Until all are done. Raises the `TransferError` of the first that fails.

    The others are aborted then, or all when cancelled; nothing writes to any memory any more when this ends.
    """
    loop = asyncio.get_running_loop()
    running = [asyncio.ensure_future(loop.run_in_executor(threads, transfer.run)) for transfer in transfers]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        errors = await _ended(transfers, running)
    if errors:
        raise min(errors, key=_is_consequence)


async def _ended(transfers: Sequence[Transfer], running: Sequence[asyncio.Future[None]]) -> list[BaseException]:
    for transfer, one in zip(transfers, running, strict=True):
        if not one.done():
            transfer.abort()
    await asyncio.wait(running)
    return [error for one in running if (error := one.exception()) is not None]


def _is_consequence(error: BaseException) -> bool:
    """What was aborted says so; the reason is with the one that failed by itself."""
    return isinstance(error, TransferError) and error.fault is Fault.ABORTED
