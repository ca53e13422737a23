"""Runs a request to its end over as many pairs as it takes: no token is lost or repeated when one fails."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from distserve_worker.gateway import errors
from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.attempt import Attempt
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.failures import Failure, LegFailedError, final, queues_full
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.metrics import Metrics
from distserve_worker.gateway.routing import Need

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
MOST_ENDED: Final = 2  # workers that one request may take along
_PAUSE_SECONDS: Final = 0.2  # before a request that has begun looks again for an instance that takes it


@dataclass(frozen=True, slots=True)
class Runner:
    """Shared by all requests."""

    fleet: Fleet
    deadlines: Deadlines
    metrics: Metrics

    async def run(self, generation: Generation, answer: Answer, *, begun: bool = False) -> None:
        """Fill `answer`, of a request of which others have `begun`: it is not refused for want of room any more.

        Raises `ApiError` when the request cannot be finished; what it has produced stays in it.
        """
        tries = _Tries()
        patience = _Patience(self.deadlines.base_seconds, -1 if begun else 0)
        while tries.spent < MAX_ATTEMPTS:
            failure = tries.last
            begun = begun or bool(answer.tokens)
            need = _need(generation, answer, tries.avoid | tries.full, begun)
            first = self.fleet.choose_first(need)
            if first is None and failure is not None and not failure.costs_an_attempt:
                tries.full = frozenset()  # they may have room by now
                if await patience.is_left(len(answer.tokens)):
                    continue
            if first is None:
                raise self.no_pair() if failure is None else final(failure, "there is no other pair to take over")
            if not begun and self.fleet.is_full(first):
                raise queues_full()  # while the client can still be told by a status; what has begun goes on
            tries.number += 1
            try:
                return await self._attempt(tries.number, generation, answer).run(first, need)
            except LegFailedError as error:
                failure = error
            self._report(generation, failure)
            tries.add(failure)
            if tries.ended >= MOST_ENDED:
                raise errors.workers_ended(tries.ended, str(failure))
        assert tries.last is not None
        raise final(tries.last, f"{MAX_ATTEMPTS} attempts have failed")

    def no_pair(self) -> ApiError:
        """What a client is told while nothing can take its request."""
        return errors.unavailable(f"No usable pair of workers: {self.fleet.shortage()}", "no_usable_pair")

    def _attempt(self, number: int, generation: Generation, answer: Answer) -> Attempt:
        def report(failure: LegFailedError) -> None:
            self._report(generation, failure)

        return Attempt(number, generation, answer, self.fleet, self.deadlines, report)

    def _report(self, generation: Generation, failure: LegFailedError) -> None:
        log.warning("request %s: %s: %s", generation.request_id, failure.failure, failure)
        self.metrics.retries.labels(failure.failure).inc()


@dataclass(slots=True)
class _Tries:
    """What has become of a request so far."""

    number: int = 0
    spent: int = 0  # those that count
    ended: int = 0  # workers that failed as they began to compute it: it may be the reason
    avoid: frozenset[str] = frozenset()  # incarnations
    full: frozenset[str] = frozenset()
    last: LegFailedError | None = None

    def add(self, failure: LegFailedError) -> None:
        """One more try has failed."""
        self.last = failure
        self.spent += failure.costs_an_attempt
        self.ended += failure.may_be_its_doing
        if failure.failure is Failure.QUEUE_FULL:
            self.full |= failure.avoid
        else:
            self.avoid |= failure.avoid


@dataclass(slots=True)
class _Patience:
    """A request that has begun, and that nobody has harmed, waits for an instance that takes it: it may not be lost.

    Every token that it gets meanwhile begins its `seconds` anew.
    """

    seconds: float
    _tokens: int  # that it had when it was asked last
    _end: float = 0.0

    async def is_left(self, tokens: int) -> bool:
        """Wait a little, with so many tokens; False when it was too long, or the request has not begun."""
        if tokens > self._tokens:
            self._tokens, self._end = tokens, time.monotonic() + self.seconds
        if time.monotonic() >= self._end:
            return False
        await asyncio.sleep(_PAUSE_SECONDS)
        return True


def _need(generation: Generation, answer: Answer, avoid: frozenset[str], begun: bool) -> Need:
    """Without a limit it is room for what is there and one token more."""
    output = generation.max_tokens or len(answer.tokens) + 1
    return Need(len(generation.prompt) + output, avoid, begun=begun)
