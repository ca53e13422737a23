"""Searches in the background, one at a time; a pass asks how far its own is and never waits."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from distserve_operator.api.deployment import Wanted
from distserve_operator.api.targets import Targets
from distserve_operator.cluster.caching import Key
from distserve_operator.cluster.errors import ApiRefusedError, ApiUnreachableError
from distserve_operator.observed.nodes import Survey
from distserve_operator.observed.search import SearchFailed
from distserve_operator.reconciling.finding import Assignment, find
from distserve_operator.reconciling.isolating import IsolatedError, run_isolated

log = logging.getLogger(__name__)

# The first search of a container may have to compile the simulator, on a slow or busy core.
SEARCH_SECONDS: Final = 300.0
_LOOK_AGAIN_SECONDS: Final = 60.0
_FIRST_DELAY_SECONDS: Final = 1.0
_LONGEST_DELAY_SECONDS: Final = 300.0

Find = Callable[[Assignment], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and its digest.

    `known`: the free devices that an infeasible answer was for; while they are the same it is not searched again.
    """

    digest: str
    wanted: Wanted
    targets: Targets
    known: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a question: its answer, or what went wrong; neither while it is searched."""

    answer: dict[str, Any] | None = None
    failure: SearchFailed | None = None


@dataclass(slots=True)
class _Entry:
    """The search of one deployment. `again_at`: not before that time is it done anew."""

    digest: str
    progress: Progress = field(default_factory=Progress)
    failures: int = 0
    again_at: float = 0.0
    task: asyncio.Task[None] | None = None

    def due(self, now: float) -> bool:
        """Whether to begin."""
        idle = self.task is None or self.task.done()
        return idle and self.progress.answer is None and now >= self.again_at


class Searcher:
    """At most one entry for each deployment, so it is bounded by their number. Belongs to one event loop.

    `wake` is called when there is news for a deployment.
    """

    def __init__(
        self,
        survey: Callable[[Wanted], Awaitable[Survey]],
        wake: Callable[[Key], None],
        find: Find = find,
        seconds: float = SEARCH_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._survey = survey
        self._wake = wake
        self._find = find
        self._seconds = seconds
        self._now = now
        self._entries: dict[Key, _Entry] = {}
        self._turn = asyncio.Lock()

    def ask(self, key: Key, asked: Asked) -> Progress:
        """How far the question is; it is begun when it is new, and when the last attempt is long enough ago."""
        entry = self._entries.get(key)
        if entry is not None and entry.digest != asked.digest:
            self.forget(key)
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry(asked.digest)
        if entry.due(self._now()):
            entry.progress = Progress()
            entry.task = asyncio.create_task(self._search(key, asked, entry), name=f"search of {'/'.join(key)}")
        return entry.progress

    def recorded(self, key: Key) -> None:
        """The answer is in the status: it need not be kept here."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.progress = Progress()
            entry.again_at = self._now() + _LOOK_AGAIN_SECONDS

    def forget(self, key: Key) -> None:
        """Nobody asks any more."""
        entry = self._entries.pop(key, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()

    async def close(self) -> None:
        """End all searches."""
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for key in list(self._entries):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _search(self, key: Key, asked: Asked, entry: _Entry) -> None:
        try:
            entry.progress = Progress(answer=await self._answer(key, asked))
        except (ApiRefusedError, ApiUnreachableError, IsolatedError, TimeoutError) as error:
            self._failed(key, entry, str(error) or type(error).__name__)
        except Exception as error:  # a mistake of ours is told like any other failure
            log.exception("%s: the search has failed", "/".join(key))
            self._failed(key, entry, f"{type(error).__name__}: {error}")
        else:
            entry.failures = 0
            entry.again_at = self._now() + _LOOK_AGAIN_SECONDS
        self._wake(key)

    async def _answer(self, key: Key, asked: Asked) -> dict[str, Any] | None:
        """None: it is still the known one."""
        where = "/".join(key)
        survey = await self._survey(asked.wanted)
        if str(survey) == asked.known:
            return None
        async with self._turn:
            log.info("%s: searches a shape for inputs %s, free devices: %s", where, asked.digest, survey)
            found = await run_isolated(self._find, Assignment(asked.wanted, asked.targets, survey), self._seconds)
        log.info("%s: found %s for inputs %s", where, found.get("shape") or found["outcome"], asked.digest)
        return {**found, "inventory": str(survey), "inputsDigest": asked.digest}

    def _failed(self, key: Key, entry: _Entry, message: str) -> None:
        delay = min(_FIRST_DELAY_SECONDS * 2.0 ** min(entry.failures, 10), _LONGEST_DELAY_SECONDS)
        log.warning("%s: the search has failed: %s; next try in %.0f s", "/".join(key), message, delay)
        entry.failures += 1
        entry.progress = Progress(failure=SearchFailed(f"the search has failed: {message}", delay))
        entry.again_at = self._now() + delay
