"""Prometheus metrics of the gateway; every label has few values."""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from distserve_proto.contract import WORKER_ROLES, Role

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 4, 7.5, 15, 30, 60, 120)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)


class Metrics:
    """One registry and its families."""

    def __init__(self, usable_pairs: Callable[[], float], ready_workers: Callable[[Role], float]) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "distserve_request", "Answered requests; 499: the client left.", ["endpoint", "code"], registry=registry
        )
        self.in_flight = Gauge("distserve_requests_in_flight", "Requests being generated.", registry=registry)
        self.body_bytes = Gauge("distserve_body_bytes", "Bodies of those requests.", registry=registry)
        self.ttft = Histogram(
            "distserve_ttft_seconds", "From receipt to the first token.", registry=registry, buckets=LATENCY_BUCKETS
        )
        self.tpot = Histogram(
            "distserve_tpot_seconds", "Per token after the first.", registry=registry, buckets=TOKEN_BUCKETS
        )
        self.stages = Histogram(
            "distserve_stage_seconds", "Stages of a request.", ["stage"], registry=registry, buckets=LATENCY_BUCKETS
        )
        self.tokens = Counter("distserve_tokens", "Tokens taken and produced.", ["kind"], registry=registry)
        self.retries = Counter("distserve_retries", "Legs that failed, by reason.", ["reason"], registry=registry)
        pairs = Gauge("distserve_usable_pairs", "Prefill and decode instances that can be paired.", registry=registry)
        pairs.set_function(usable_pairs)
        workers = Gauge("distserve_ready_workers", "Instances that take requests.", ["role"], registry=registry)
        for role in WORKER_ROLES:
            workers.labels(role).set_function(partial(ready_workers, role))
