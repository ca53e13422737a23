"""Times a request and writes it into the metrics and the log."""

import logging
import time
from dataclasses import asdict

from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.metrics import Metrics

log = logging.getLogger(__name__)

CLIENT_GONE = 499


class Stopwatch:
    """From the receipt of one request to its end."""

    def __init__(self, endpoint: str, request_id: str, metrics: Metrics) -> None:
        self._endpoint = endpoint
        self._request_id = request_id
        self._metrics = metrics
        self._started = time.monotonic()
        self._first_token: float | None = None

    def token(self) -> None:
        """A token is there; only the first one matters."""
        if self._first_token is None:
            self._first_token = time.monotonic()
            self._metrics.ttft.observe(self._first_token - self._started)

    def answered(self, generation: Generation, answer: Answer) -> None:
        """The answer is complete."""
        self._metrics.tokens.labels("prompt").inc(len(generation.prompt))
        self._metrics.tokens.labels("output").inc(len(answer.tokens))
        for stage, seconds in asdict(answer.stages).items():
            self._metrics.stages.labels(stage).observe(seconds)
        gaps = len(answer.tokens) - 1
        if gaps > 0 and self._first_token is not None:
            self._metrics.tpot.observe((time.monotonic() - self._first_token) / gaps)

    def ended(self, code: int) -> None:
        """The client has its answer or its error, or has left."""
        self._metrics.requests.labels(self._endpoint, str(code)).inc()
        seconds = time.monotonic() - self._started
        log.info("request %s: %s %d in %.3f s", self._request_id, self._endpoint, code, seconds)
