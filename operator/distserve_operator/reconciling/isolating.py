"""Runs a function in a process of its own: it may take long, take much memory or die, and the event loop goes on.

A process for each call, as calls are rare: its memory goes when it ends, and it can be killed at any moment, which a
pool of processes cannot do to a call that has begun.
"""

import asyncio
import logging
import math
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final

log = logging.getLogger(__name__)

_SPAWN: Final = multiprocessing.get_context("spawn")
_GRACE_SECONDS: Final = 5


class IsolatedError(Exception):
    """The process ended without a result; the text says how."""


async def run_isolated(function: Callable[[Any], Any], argument: object, seconds: float) -> Any:  # noqa: ANN401
    """The result of `function(argument)`, both of which can be pickled. Raises `IsolatedError`, also after `seconds`.

    When the waiting is cancelled the process is killed; when the operator is, it ends by itself soon after `seconds`.
    """
    receiver, sender = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_run, args=(sender, function, argument, seconds), daemon=True)
    process.start()  # some milliseconds; in a thread it could not be killed when the waiting is cancelled meanwhile
    sender.close()
    reading = asyncio.create_task(asyncio.to_thread(_received, receiver))
    try:
        async with asyncio.timeout(seconds):
            outcome = await asyncio.shield(reading)
    except TimeoutError:
        raise IsolatedError(f"it was not done within {seconds:g} s") from None
    finally:
        process.kill()
        await reading  # its writing end is closed by now
        process.join(_GRACE_SECONDS)
        receiver.close()
    if outcome is None:
        raise IsolatedError(f"its process ended {_ending(process)}")
    done, result = outcome
    if not done:
        raise IsolatedError(str(result))
    return result


def _run(sender: Connection, function: Callable[[Any], Any], argument: object, seconds: float) -> None:
    """In the child. The kernel's alarm ends it even when nobody waits any more, whatever it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.alarm(math.ceil(seconds) + _GRACE_SECONDS)
    try:
        outcome = True, function(argument)
    except Exception as error:  # whatever it was, the parent is told
        log.exception("%s has failed", function.__name__)
        outcome = False, f"{type(error).__name__}: {error}"
    sender.send(outcome)


def _received(receiver: Connection) -> tuple[bool, Any] | None:
    try:
        outcome: tuple[bool, Any] = receiver.recv()
    except EOFError:
        return None
    return outcome


def _ending(process: SpawnProcess) -> str:
    code = process.exitcode
    if code is None or code >= 0:
        return f"with exit code {code}"
    name = signal.Signals(-code).name
    return f"by {name}" + (", perhaps for lack of memory" if code == -signal.SIGKILL else "")
