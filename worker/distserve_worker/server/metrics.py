"""Prometheus metrics of a worker process."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from distserve_worker.engine.interface import Load

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PULL_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """One registry for the process, and what is counted in it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._held = self._gauge("kv_blocks_held", "KV blocks that are not free")
        self._capacity = self._gauge("kv_blocks_capacity", "KV blocks that exist")
        self._waiting = self._gauge("requests_waiting", "Requests that do not run yet")
        self._running = self._gauge("requests_running", "Requests in the running batch")
        self._parked = self._gauge("requests_parked", "Requests whose KV waits to be pulled")
        self.steps = self._counter("steps", "Engine steps")
        self.tokens = self._counter("tokens", "Tokens sampled")
        self.leases_expired = self._counter("kv_leases_expired", "Parked KV freed because nobody renewed its lease")
        self.requests_put_back = self._counter("requests_put_back", "Requests that gave their KV memory back")
        self.requests_failed = self._counter("requests_failed", "Requests that ended with a failure", "code")
        self.pull_bytes = self._counter("kv_pull_bytes", "KV bytes pulled", "transport")
        self.pull_seconds = Histogram(
            "distserve_kv_pull_seconds",
            "Seconds from agreeing on a pull to its last byte",
            buckets=_PULL_BUCKETS,
            registry=self._registry,
        )

    def show(self, load: Load) -> None:
        """Set the gauges."""
        self._held.set(load.total_blocks - load.free_blocks)
        self._capacity.set(load.total_blocks)
        self._waiting.set(load.waiting)
        self._running.set(load.running)
        self._parked.set(load.parked)

    def text(self) -> bytes:
        """Everything in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"distserve_{name}", text, registry=self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"distserve_{name}", text, labels, registry=self._registry)
