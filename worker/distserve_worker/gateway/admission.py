"""Bounds how many requests are in the gateway at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from distserve_worker.gateway.errors import too_many_requests


class Admission:
    """A number of places; a request without one is refused at once and told to come back."""

    def __init__(self, places: int, in_flight: Gauge) -> None:
        self._places = places
        self._taken = 0
        self._in_flight = in_flight

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place. Raises `ApiError` (429) when all are taken."""
        if self._taken >= self._places:
            raise too_many_requests(f"The gateway already has {self._places} requests in flight")
        self._taken += 1
        self._in_flight.set(self._taken)
        try:
            yield
        finally:
            self._taken -= 1
            self._in_flight.set(self._taken)
