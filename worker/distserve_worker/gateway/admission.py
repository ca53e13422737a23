"""Bounds how many requests are in the gateway at once, and how much their bodies take."""

from collections.abc import Iterator
from contextlib import contextmanager

from distserve_worker.gateway.errors import too_many_requests
from distserve_worker.gateway.metrics import Metrics


class Place:
    """Of one request, from the first byte of its body to the end of its answer."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.body_bytes = 0

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
        if self._taken >= self._places:
            raise too_many_requests(f"The gateway already has {self._places} requests in flight")
        place = Place(self)
        self._take(1, 0)
        try:
            yield place
        finally:
            self._take(-1, -place.body_bytes)

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
