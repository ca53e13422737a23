"""How long a leg may take: a base plus time per token, so no deadline is shorter than a legal long request."""

from dataclasses import dataclass

from distserve_worker.gateway.routing import Candidate


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Upper bounds in seconds against workers that neither answer nor die; far above what a healthy fleet needs.

    What is ahead of a request may have no limit, so each counts as the longest that the instance holds.
    """

    base_seconds: float
    milliseconds_per_token: float

    def prefill(self, tokens: int, worker: Candidate) -> float:
        """For the prefill of `tokens`, after the queue, and after decode has made room for the KV that is parked."""
        return self._seconds(tokens + worker.queued_tokens + worker.parked * worker.max_tokens)

    def place(self, worker: Candidate) -> float:
        """Until a decode instance has room for one more request and has pulled its KV."""
        return self._seconds((worker.requests + 1) * worker.max_tokens)

    def decode(self, tokens: int) -> float:
        """For the decode of a request of at most `tokens`, its prompt included."""
        return self._seconds(tokens)

    def _seconds(self, tokens: int) -> float:
        return self.base_seconds + tokens * self.milliseconds_per_token / 1000
