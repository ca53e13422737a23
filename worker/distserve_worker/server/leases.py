"""Leases of parked KV caches: pure accounting, the caller brings the time."""


class Leases:
    """Until when each key may be read; an expired lease can neither be used nor renewed."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends: dict[str, float] = {}

    def grant(self, key: str, now: float) -> None:
        """Begin a lease."""
        self._ends[key] = now + self.seconds

    def holds(self, key: str, now: float) -> bool:
        """Whether the lease exists and has not expired."""
        return key in self._ends and now < self._ends[key]

    def renew(self, key: str, now: float) -> bool:
        """Begin it anew; False, and nothing else, when it does not hold any more."""
        if not self.holds(key, now):
            return False
        self.grant(key, now)
        return True

    def end(self, key: str) -> None:
        """Forget a lease; unknown keys are ignored."""
        self._ends.pop(key, None)

    def expired(self, now: float) -> tuple[str, ...]:
        """Keys whose lease is over and was not ended yet."""
        return tuple(key for key, end in self._ends.items() if end <= now)
