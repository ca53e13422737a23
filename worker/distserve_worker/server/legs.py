"""The legs that this worker serves: who submitted each, and how it ends for its gateway."""

import asyncio
import itertools
import logging
from dataclasses import dataclass, field

from distserve_proto import worker_pb2
from distserve_worker.engine.interface import FinishReason
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.outbox import Outbox
from distserve_worker.server.wire import finished

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Leg:
    """One phase of one request. Times are time.monotonic seconds."""

    key: str  # this worker's own name for it, never used twice
    request_id: str  # the gateway's name, unique on its stream
    outbox: Outbox
    received: float
    stages: worker_pb2.Stages = field(default_factory=worker_pb2.Stages)
    started: float = 0.0  # when the engine began to compute its first tokens
    joined: float | None = None  # when its KV was complete: pulled, or computed on a colocated worker
    deadline: asyncio.TimerHandle | None = None

    @property
    def event(self) -> worker_pb2.RequestEvent:
        """Its event in the message of this step."""
        return self.outbox.event(self.request_id)


class Legs:
    """Every leg from its submission until its end; used on the event loop only.

    Ends are written into the open message of the leg's stream; whoever calls flushes the streams.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._numbers = itertools.count(1)
        self._by_key: dict[str, Leg] = {}
        self._by_stream: dict[Outbox, dict[str, Leg]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, outbox: Outbox, request_id: str, received: float) -> Leg:
        """A new leg; its request id is free on its stream."""
        leg = Leg(f"{request_id}#{next(self._numbers)}", request_id, outbox, received)
        self._by_key[leg.key] = leg
        self._by_stream.setdefault(outbox, {})[request_id] = leg
        return leg

    def get(self, key: str) -> Leg | None:
        """The leg of that key, unless it has ended."""
        return self._by_key.get(key)

    def find(self, outbox: Outbox, request_id: str) -> Leg | None:
        """The leg that a gateway calls so."""
        return self._by_stream.get(outbox, {}).get(request_id)

    def of(self, outbox: Outbox) -> tuple[Leg, ...]:
        """The legs of a stream."""
        return tuple(self._by_stream.get(outbox, {}).values())

    def all(self) -> tuple[Leg, ...]:
        """Every leg."""
        return tuple(self._by_key.values())

    def remove(self, leg: Leg) -> None:
        """Forget a leg; its gateway hears no more of it."""
        if leg.deadline is not None:
            leg.deadline.cancel()
        del self._by_key[leg.key]
        of_stream = self._by_stream[leg.outbox]
        del of_stream[leg.request_id]
        if not of_stream:
            del self._by_stream[leg.outbox]

    def finish(self, leg: Leg, reason: FinishReason) -> None:
        """The leg ended well."""
        leg.event.finished.CopyFrom(finished(reason, leg.stages))
        self.remove(leg)

    def put_back(self, leg: Leg) -> None:
        """There was no memory left for it; its gateway goes on elsewhere."""
        leg.event.put_back.CopyFrom(worker_pb2.PutBack(stages=leg.stages))
        self._metrics.requests_put_back.inc()
        self.remove(leg)

    def fail(self, leg: Leg, code: worker_pb2.FailureCode.ValueType, message: str) -> None:
        """The leg ended badly."""
        self.refuse(leg.outbox, leg.request_id, code, message)
        self.remove(leg)

    def refuse(self, outbox: Outbox, request_id: str, code: worker_pb2.FailureCode.ValueType, message: str) -> None:
        """Answer a request that is none of our legs, or not any more."""
        name = worker_pb2.FailureCode.Name(code).removeprefix("FAILURE_CODE_")
        log.info("request %.64s failed: %s: %s", request_id, name, message)
        self._metrics.requests_failed.labels(name).inc()
        outbox.event(request_id).failed.CopyFrom(worker_pb2.Failed(code=code, message=message))
