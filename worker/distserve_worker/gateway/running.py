"""Runs a request to its end over as many pairs as it takes: no token is lost or repeated when one fails."""

import logging
from dataclasses import dataclass

from distserve_worker.gateway import errors
from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.attempt import Attempt
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.errors import ApiError
from distserve_worker.gateway.failures import LegFailedError, final
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.metrics import Metrics

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Runner:
    """Shared by all requests."""

    fleet: Fleet
    deadlines: Deadlines
    metrics: Metrics

    async def run(self, generation: Generation, answer: Answer) -> None:
        """Fill `answer`. Raises `ApiError` when the request cannot be finished; what it has produced stays in it."""
        avoid: set[str] = set()
        spent, number = 0, 0
        failure: LegFailedError | None = None
        while spent < MAX_ATTEMPTS:
            pair = self.fleet.choose(avoid)
            if pair is None:
                raise self.no_pair() if failure is None else final(failure, "there is no other pair to take over")
            answer.pair = pair
            number += 1
            try:
                return await Attempt(number, generation, answer, pair).run(self.fleet, self.deadlines)
            except LegFailedError as error:
                failure = error
            log.warning("request %s, attempt %d: %s", generation.request_id, number, failure)
            self.metrics.retries.labels(failure.failure).inc()
            avoid |= failure.avoid
            spent += failure.costs_an_attempt
        assert failure is not None
        raise final(failure, f"{MAX_ATTEMPTS} attempts have failed")

    def no_pair(self) -> ApiError:
        """What a client is told while nothing can take its request."""
        return errors.unavailable(f"No usable pair of workers: {self.fleet.shortage()}", "no_usable_pair")
