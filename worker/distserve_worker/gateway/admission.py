"""Bounds how many requests are in the gateway at once, and how much their bodies take."""

from collections.abc import Iterator
from contextlib import contextmanager

from distserve_worker.gateway.errors import invalid, too_many_requests
from distserve_worker.gateway.metrics import Metrics


class Place:
    """Of one request, from the first byte of its body to the end of its answers."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.places = 1
        self.body_bytes = 0

    def widen(self, choices: int) -> None:
        """So many answers are asked for and take a place each. Raises `ApiError`: 429, or 400 when they never fit."""
        self._admission.count_places(choices, self.places)
        self.places = choices

    def grow(self, count: int) -> None:
        """So many bytes more have arrived. Raises `ApiError` (429) when all bodies together become too large."""
        self._admission.count_bytes(count)
        self.body_bytes += count


class Admission:
    """Places and bytes; a request that there is no room for is refused at once and told to come back."""

    def __init__(self, places: int, body_bytes: int, metrics: Metrics) -> None:
        self._places = places
        self._body_bytes = body_bytes
        self._metrics = metrics
        self._taken = 0
        self._held_bytes = 0

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Hold a place. Raises `ApiError` (429) when all are taken."""
        self.count_places(1, 0)
        place = Place(self)
        try:
            yield place
        finally:
            self._take(-place.places, -place.body_bytes)

    def count_places(self, places: int, held: int) -> None:
        """See `Place.widen`; `held` of the places are the request's own already."""
        if places > self._places:
            message = f"'n' must be at most {self._places}, the requests that this gateway takes at once, got {places}"
            raise invalid(message, "n", "invalid_value")
        if self._taken + places - held > self._places:
            raise too_many_requests(f"The gateway takes {self._places} requests at once and has {self._taken}")
        self._take(places - held, 0)

    def count_bytes(self, count: int) -> None:
        """See `Place.grow`."""
        if self._held_bytes + count > self._body_bytes:
            raise too_many_requests(f"The bodies of the requests in flight would come to over {self._body_bytes} bytes")
        self._take(0, count)

    def _take(self, places: int, count: int) -> None:
        self._taken += places
        self._held_bytes += count
        self._metrics.in_flight.set(self._taken)
        self._metrics.body_bytes.set(self._held_bytes)
