"""The decode side: gets the KV of each leg from its prefill worker and lets the leg join the batch."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from distserve_proto import kv_pb2, worker_pb2
from distserve_worker.engine.interface import BlockRef
from distserve_worker.server.arrivals import Exported, Step, Target
from distserve_worker.server.commands import Command, Drop, Imported
from distserve_worker.server.handle_checks import handle_objection
from distserve_worker.server.identity import Identity
from distserve_worker.server.kv_failures import KvFailure
from distserve_worker.server.legs import Leg, Legs
from distserve_worker.server.pulling import Pulled, Puller
from distserve_worker.server.streams import Streams

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Fetch:
    """A leg on its way into the batch."""

    leg: Leg
    handle: kv_pb2.KvHandle
    target: asyncio.Future[tuple[BlockRef, ...]]
    task: asyncio.Task[Pulled]
    reserved: float | None = None

    def cancel(self) -> None:
        """End it once: a second cancellation would cut the wait for the transfer's thread."""
        if not self.task.cancelling():
            self.task.cancel()


class Fetching:
    """See `Side`. A leg's memory is freed after the last byte of its transfer, never before."""

    def __init__(
        self, post: Callable[[Command], None], legs: Legs, streams: Streams, identity: Identity, puller: Puller
    ) -> None:
        self._post = post
        self._legs = legs
        self._streams = streams
        self._identity = identity
        self._puller = puller
        self._fetches: dict[str, _Fetch] = {}
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def phase(self) -> worker_pb2.Phase.ValueType:
        """See `Side.phase`."""
        return worker_pb2.PHASE_DECODE

    def is_counted_on(self, submit: worker_pb2.Submit) -> bool:  # noqa: ARG002
        """See `Side.is_counted_on`."""
        return True

    @property
    def busy(self) -> bool:
        """See `Side.busy`."""
        return bool(self._fetches or self._releases)

    def objection(self, submit: worker_pb2.Submit) -> str | None:
        """See `Side.objection`."""
        return handle_objection(submit, self._identity)

    def begin(self, leg: Leg, submit: worker_pb2.Submit) -> None:
        """Keep the lease of its KV alive from now on."""
        target: asyncio.Future[tuple[BlockRef, ...]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._puller.pull(submit.kv, target), name=f"fetch {leg.key}")
        fetch = _Fetch(leg, submit.kv, target, task)
        self._fetches[leg.key] = fetch
        task.add_done_callback(lambda _: self._ended(fetch))

    def clock(self, leg: Leg, step: Step) -> None:
        """See `Side.clock`."""
        assert leg.joined is not None, "tokens come after the import"
        leg.stages.decode = step.ended - leg.joined

    def take(self, leg: Leg, arrival: Exported | Target) -> None:
        """There is room: the pull may begin."""
        assert isinstance(arrival, Target), "a decode engine parks nothing"
        fetch = self._fetches[leg.key]
        fetch.reserved = time.monotonic()
        leg.stages.decode_queue = fetch.reserved - leg.received
        if not fetch.target.done():  # cancelled with a fetch whose end is being handled
            fetch.target.set_result(arrival.blocks)

    def drop(self, key: str) -> None:
        """See `Side.drop`."""
        fetch = self._fetches.get(key)
        if fetch is None:
            self._post(Drop(key))
        else:
            fetch.cancel()  # its end frees the blocks

    async def close(self) -> None:
        """End what still runs."""
        for fetch in self._fetches.values():
            fetch.cancel()
        for release in self._releases:
            release.cancel()
        tasks = (*(fetch.task for fetch in self._fetches.values()), *self._releases)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._puller.close()

    def _ended(self, fetch: _Fetch) -> None:
        del self._fetches[fetch.leg.key]
        if fetch.task.cancelled():
            self._post(Drop(fetch.leg.key))
            return
        error = fetch.task.exception()
        if error is None:
            self._join(fetch, fetch.task.result())
        else:
            self._fail(fetch.leg, error)

    def _join(self, fetch: _Fetch, pulled: Pulled) -> None:
        self._release(fetch.handle)
        leg = fetch.leg
        if self._legs.get(leg.key) is None:
            self._post(Drop(leg.key))
            return
        assert fetch.reserved is not None, "a pull fills reserved memory"
        leg.joined = time.monotonic()
        leg.stages.transfer = leg.joined - fetch.reserved
        leg.stages.kv_bytes = pulled.nbytes
        leg.stages.transport = pulled.transport
        self._post(Imported(leg.key))
        leg.event.joined.CopyFrom(worker_pb2.Joined(stages=leg.stages))
        self._streams.flush()

    def _fail(self, leg: Leg, error: BaseException) -> None:
        self._post(Drop(leg.key))
        if self._legs.get(leg.key) is None:
            return
        if isinstance(error, KvFailure):
            self._legs.fail(leg, error.code, str(error))
        else:
            log.error("fetching the KV of %s", leg.key, exc_info=error)
            self._legs.fail(leg, worker_pb2.FAILURE_CODE_INTERNAL, f"fetching the KV: {error!r}")
        self._streams.flush()

    def _release(self, handle: kv_pb2.KvHandle) -> None:
        task = asyncio.create_task(self._puller.release(handle))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
