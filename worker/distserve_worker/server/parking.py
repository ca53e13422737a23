"""The prefill side: keeps the KV of finished prefills under leases until somebody has pulled it."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import grpc

from distserve_proto import kv_pb2, worker_pb2
from distserve_worker.server.arrivals import Exported, Step, Target
from distserve_worker.server.commands import Command, Drop
from distserve_worker.server.identity import Identity
from distserve_worker.server.kept import Kept
from distserve_worker.server.kv_wire import (
    block_messages,
    blocks_of,
    layout_message,
    layout_of,
    shard_message,
    shard_of,
    shards_of,
    source_message,
)
from distserve_worker.server.leases import Leases
from distserve_worker.server.legs import Leg, Legs
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.piece_checks import pieces_objection
from distserve_worker.server.reader import Wanted
from distserve_worker.transfer.agent import Agent, Share
from distserve_worker.transfer.interface import Fault, TransferError

log = logging.getLogger(__name__)

MAX_READERS: Final = 16  # pulls that a prefill worker serves side by side
_SWEEPS_PER_LEASE: Final = 10


class KvRefused(Exception):  # noqa: N818 - an answer to one reader
    """A handle that cannot be served."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Parking:
    """See `Side`. A KV leaves by release, by expiry or with its leg; its memory is freed after its last reader."""

    def __init__(
        self,
        post: Callable[[Command], None],
        legs: Legs,
        identity: Identity,
        agents: Sequence[Agent],
        lease_seconds: float,
        metrics: Metrics,
    ) -> None:
        """`agents`: one a rank, in the order of the identity's shards."""
        self._post = post
        self._legs = legs
        self._identity = identity
        self._agents = agents
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

    def connect(self, incarnation: str) -> kv_pb2.ConnectResponse:
        """How each rank can be reached. Raises `KvRefused`."""
        self._check_incarnation(incarnation)
        ranks = [
            [kv_pb2.Transport(name=way.transport, probe=way.probe) for way in agent.ways] for agent in self._agents
        ]
        return kv_pb2.ConnectResponse(ranks=[kv_pb2.RankTransports(transports=ways) for ways in ranks])

    async def pull(self, request: kv_pb2.PullRequest) -> kv_pb2.PullResponse:
        """Offer pieces of a parked KV to a reader. Raises `KvRefused`."""
        kept = self._checked(request.handle)
        objection = pieces_objection(request.pieces, self._identity.shards, self._agents)
        if objection is not None:
            raise KvRefused(grpc.StatusCode.FAILED_PRECONDITION, objection)
        if sum(one.readers for one in (*self._kept.values(), *self._leaving.values())) >= MAX_READERS:
            text = f"{MAX_READERS} pulls are offered or running already"
            raise KvRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        wanted = [self._wanted(kept, piece) for piece in request.pieces]
        try:
            sources = await kept.offer(wanted, sum(self._nbytes(one.share) for one in wanted))
        except TransferError as error:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.fault is Fault.BUSY else grpc.StatusCode.INTERNAL
            raise KvRefused(code, str(error)) from error
        return kv_pb2.PullResponse(sources=[source_message(source) for source in sources])

    def renew(self, incarnation: str, key: str) -> float:
        """Begin a lease anew; its seconds. Raises `KvRefused`."""
        self._check_incarnation(incarnation)
        if not self._leases.renew(key, time.monotonic()):
            raise _gone(key)
        return self._leases.seconds

    def release(self, incarnation: str, key: str) -> None:
        """The reader has what it needs. Unknown handles are ignored."""
        if incarnation == self._identity.incarnation:
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

    def _wanted(self, kept: Kept, piece: kv_pb2.Piece) -> Wanted:
        share = Share(tuple(block.index for block in kept.parked.blocks), shard_of(piece.part))
        return Wanted(self._agents[piece.rank], piece.transport, share)

    def _nbytes(self, share: Share) -> int:
        return len(share.blocks) * share.part.layers * 2 * share.part.heads * self._identity.layout.head_bytes

    def _checked(self, handle: kv_pb2.KvHandle) -> Kept:
        self._check_incarnation(handle.incarnation)
        self._check_equal("compatibility_key", handle.compatibility_key, self._identity.compatibility_key)
        self._check_equal("layout", layout_of(handle.layout), self._identity.layout)
        self._check_equal("shards", shards_of(handle), self._identity.shards)
        kept = self._kept.get(handle.request_id)
        if kept is None or not self._leases.holds(handle.request_id, time.monotonic()):
            raise _gone(handle.request_id)
        if blocks_of(handle) != kept.parked.blocks:
            # What is parked is pinned: blocks with other generations were freed, and hold somebody else's KV by now.
            text = f"handle.blocks: are not those of {handle.request_id}"
            raise KvRefused(grpc.StatusCode.FAILED_PRECONDITION, text)
        self._check_equal("tokens", handle.tokens, kept.parked.tokens)
        return kept

    def _check_incarnation(self, incarnation: str) -> None:
        self._check_equal("incarnation", incarnation, self._identity.incarnation)

    def _check_equal(self, name: str, told: object, ours: object) -> None:
        if told != ours:
            raise KvRefused(grpc.StatusCode.FAILED_PRECONDITION, f"handle.{name}: is {told}, here it is {ours}")

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


def _gone(key: str) -> KvRefused:
    return KvRefused(grpc.StatusCode.NOT_FOUND, f"handle.request_id: {key} is not parked here, or its lease expired")
