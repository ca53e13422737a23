"""How long a leg may take: a base plus time per token, so no deadline is shorter than a legal long prefill."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Upper bounds against workers that neither answer nor die; far above what a healthy fleet needs."""

    base_seconds: float
    milliseconds_per_token: float

    def leg(self, tokens: int) -> float:
        """Seconds for a leg that has to get through `tokens` tokens, those ahead of it in the queue included."""
        return self.base_seconds + tokens * self.milliseconds_per_token / 1000
