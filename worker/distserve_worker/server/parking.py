"""The prefill side: keeps the KV of finished prefills under leases until somebody has pulled it."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from distserve_proto import kv_pb2, worker_pb2
from distserve_worker.server.arrivals import Exported, Step, Target
from distserve_worker.server.commands import Command, Drop
from distserve_worker.server.identity import Identity
from distserve_worker.server.kept import Kept
from distserve_worker.server.kv_wire import block_messages, layout_message, shard_message
from distserve_worker.server.leases import Leases
from distserve_worker.server.legs import Leg, Legs
from distserve_worker.server.metrics import Metrics

log = logging.getLogger(__name__)

_SWEEPS_PER_LEASE: Final = 10


class Parking:
    """See `Side`. A KV leaves by release, by expiry or with its leg; its memory is freed after its last reader."""

    def __init__(
        self,
        post: Callable[[Command], None],
        legs: Legs,
        identity: Identity,
        lease_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._post = post
        self._legs = legs
        self._identity = identity
        self._leases = Leases(lease_seconds)
        self._metrics = metrics
        self._kept: dict[str, Kept] = {}
        self._leaving: dict[str, Kept] = {}

    @property
    def phase(self) -> worker_pb2.Phase.ValueType:
        """See `Side.phase`."""
        return worker_pb2.PHASE_PREFILL

    def is_counted_on(self, submit: worker_pb2.Submit) -> bool:
        """See `Side.is_counted_on`."""
        return bool(submit.output)

    @property
    def busy(self) -> bool:
        """See `Side.busy`."""
        return bool(self._leaving)

    def objection(self, submit: worker_pb2.Submit) -> str | None:
        """See `Side.objection`."""
        return "kv: a handle is for decode workers, this one serves prefill" if submit.HasField("kv") else None

    def begin(self, leg: Leg, submit: worker_pb2.Submit) -> None:
        """The engine does all that there is to do."""

    def clock(self, leg: Leg, step: Step) -> None:
        """See `Side.clock`."""
        leg.stages.prefill = step.ended - leg.started

    def take(self, leg: Leg, arrival: Exported | Target) -> None:
        """Park the KV and tell the gateway its handle."""
        assert isinstance(arrival, Exported), "a prefill engine reserves nothing"
        if leg.deadline is not None:
            leg.deadline.cancel()  # the leg is over; from here on the lease counts
        self._kept[leg.key] = Kept(arrival, partial(self._unread, leg.key))
        self._leases.grant(leg.key, time.monotonic())
        leg.event.parked.CopyFrom(worker_pb2.Parked(kv=self._handle(leg.key, arrival), stages=leg.stages))

    def drop(self, key: str) -> None:
        """See `Side.drop`."""
        self._leave(key, interrupt=True)

    @property
    def readers(self) -> int:
        """Pulls that are offered or running."""
        return sum(kept.readers for kept in (*self._kept.values(), *self._leaving.values()))

    def held(self, key: str) -> Kept | None:
        """A KV whose lease holds."""
        return self._kept.get(key) if self._leases.holds(key, time.monotonic()) else None

    def renew(self, key: str) -> float | None:
        """Begin a lease anew; its seconds, None when it does not hold any more."""
        return self._leases.seconds if self._leases.renew(key, time.monotonic()) else None

    def release(self, key: str) -> None:
        """The reader has what it needs. Unknown keys are ignored."""
        self._forget(key, interrupt=True)

    async def sweep(self) -> None:
        """Free what nobody renewed, for ever; whether a lease holds never depends on when this runs."""
        while True:
            await asyncio.sleep(self._leases.seconds / _SWEEPS_PER_LEASE)
            self._expire()

    def _expire(self) -> None:
        for key in self._leases.expired(time.monotonic()):
            log.warning("the lease of %s has expired: its KV is freed", key)
            self._metrics.leases_expired.inc()
            self._forget(key, interrupt=False)  # a transfer that runs is allowed to end

    def _handle(self, key: str, exported: Exported) -> kv_pb2.KvHandle:
        return kv_pb2.KvHandle(
            incarnation=self._identity.incarnation,
            request_id=key,
            address=self._identity.address,
            layout=layout_message(self._identity.layout),
            blocks=block_messages(exported.parked.blocks),
            tokens=exported.parked.tokens,
            lease_milliseconds=round(self._leases.seconds * 1000),
            compatibility_key=self._identity.compatibility_key,
            shards=[shard_message(shard) for shard in self._identity.shards],
        )

    def _forget(self, key: str, *, interrupt: bool) -> None:
        leg = self._legs.get(key)
        if leg is not None and key in self._kept:
            self._legs.remove(leg)
            self._leave(key, interrupt=interrupt)

    def _leave(self, key: str, *, interrupt: bool) -> None:
        self._leases.end(key)
        kept = self._kept.pop(key, None)
        if kept is None or not kept.readers:
            self._post(Drop(key))
            return
        self._leaving[key] = kept
        if interrupt:
            kept.interrupt()

    def _unread(self, key: str) -> None:
        if self._leaving.pop(key, None) is not None:
            self._post(Drop(key))
