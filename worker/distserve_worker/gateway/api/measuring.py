"""Times a request and writes it into the metrics and the log."""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict

from distserve_worker.gateway.answer import Answer
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
        self._tokens_at: dict[int, tuple[float, float]] = {}  # first and last one of each choice

    def token(self, choice: int) -> None:
        """A choice has grown."""
        now = time.monotonic()
        if not self._tokens_at:
            self._metrics.ttft.observe(now - self._started)
        first, _ = self._tokens_at.get(choice, (now, now))
        self._tokens_at[choice] = first, now

    def answered(self, prompt_tokens: int, answers: Sequence[Answer]) -> None:
        """All choices are complete."""
        self._metrics.tokens.labels("prompt").inc(prompt_tokens)
        for choice, answer in enumerate(answers):
            self._metrics.tokens.labels("output").inc(len(answer.tokens))
            for stage, seconds in asdict(answer.stages).items():
                self._metrics.stages.labels(stage).observe(seconds)
            first, last = self._tokens_at[choice]
            if len(answer.tokens) > 1:
                self._metrics.tpot.observe((last - first) / (len(answer.tokens) - 1))

    def ended(self, code: int) -> None:
        """The client has its answer or its error, or has left."""
        self._metrics.requests.labels(self._endpoint, str(code)).inc()
        seconds = time.monotonic() - self._started
        log.info("request %s: %s %d in %.3f s", self._request_id, self._endpoint, code, seconds)
