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
from distserve_worker.gateway.routing import Candidate, Need

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
_PAUSE_SECONDS: Final = 0.2  # before a request that has begun looks again for an instance that takes it


@dataclass(frozen=True, slots=True)
class Runner:
    """Shared by all requests."""

    fleet: Fleet
    deadlines: Deadlines
    metrics: Metrics

    async def run(self, generation: Generation, answer: Answer) -> None:
        """Fill `answer`. Raises `ApiError` when the request cannot be finished; what it has produced stays in it."""
        avoid, full = frozenset[str](), frozenset[str]()
        patience = _Patience(self.deadlines.base_seconds)
        spent, number = 0, 0
        failure: LegFailedError | None = None
        while spent < MAX_ATTEMPTS:
            need = _need(generation, answer, avoid | full)
            first = self.fleet.choose_first(need)
            if first is None and failure is not None and not failure.costs_an_attempt:
                full = frozenset()  # they may have room by now
                if await patience.is_left(len(answer.tokens)):
                    continue
            if first is None:
                raise self.no_pair() if failure is None else final(failure, "there is no other pair to take over")
            self._refuse_overload(first, answer)
            number += 1
            try:
                return await self._attempt(number, generation, answer).run(first, need)
            except LegFailedError as error:
                failure = error
            self._report(generation, failure)
            if failure.failure is Failure.QUEUE_FULL:
                full |= failure.avoid
            else:
                avoid |= failure.avoid
            spent += failure.costs_an_attempt
        assert failure is not None
        raise final(failure, f"{MAX_ATTEMPTS} attempts have failed")

    def no_pair(self) -> ApiError:
        """What a client is told while nothing can take its request."""
        return errors.unavailable(f"No usable pair of workers: {self.fleet.shortage()}", "no_usable_pair")

    def _refuse_overload(self, first: Candidate, answer: Answer) -> None:
        """Too much is refused while the client can still be told by a status; what has begun goes on."""
        if not answer.tokens and self.fleet.is_full(first):
            raise queues_full()

    def _attempt(self, number: int, generation: Generation, answer: Answer) -> Attempt:
        def report(failure: LegFailedError) -> None:
            self._report(generation, failure)

        return Attempt(number, generation, answer, self.fleet, self.deadlines, report)

    def _report(self, generation: Generation, failure: LegFailedError) -> None:
        log.warning("request %s: %s: %s", generation.request_id, failure.failure, failure)
        self.metrics.retries.labels(failure.failure).inc()


@dataclass(slots=True)
class _Patience:
    """A request that has begun, and that nobody has harmed, waits for an instance that takes it: it may not be lost.

    Every token that it gets meanwhile begins its `seconds` anew.
    """

    seconds: float
    _tokens: int = 0
    _end: float = 0.0

    async def is_left(self, tokens: int) -> bool:
        """Wait a little, with so many tokens; False when it was too long, or the request has not begun."""
        if tokens > self._tokens:
            self._tokens, self._end = tokens, time.monotonic() + self.seconds
        if time.monotonic() >= self._end:
            return False
        await asyncio.sleep(_PAUSE_SECONDS)
        return True


def _need(generation: Generation, answer: Answer, avoid: frozenset[str]) -> Need:
    """Without a limit it is room for what is there and one token more."""
    output = generation.max_tokens or len(answer.tokens) + 1
    return Need(len(generation.prompt) + output, avoid, begun=bool(answer.tokens))
