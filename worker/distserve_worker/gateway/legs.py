"""The legs of one attempt: submits them, hands on their events in order of arrival, and ends them."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final

from distserve_proto.contract import Role
from distserve_proto.worker_pb2 import RequestEvent, Submit
from distserve_worker.gateway.failures import failed, lost
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.routing import Candidate
from distserve_worker.gateway.workers.session import Leg, Lost, WorkerUnreachableError

_LONGEST_MILLISECONDS: Final = 2**32 - 1  # that the wire can say: seven weeks


class Legs:
    """At most one leg of each role; the loss of one counts even while the other is awaited."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._legs: dict[Role, tuple[Candidate, Leg]] = {}
        self._holder: Candidate | None = None  # of the KV
        # bounded by construction: a leg sends one event per token at most, and one as it begins
        self._arrivals: asyncio.Queue[tuple[Candidate, RequestEvent | Lost]] = asyncio.Queue()

    def start(self, worker: Candidate, submit: Submit, seconds: float) -> None:
        """Submit a leg that may take `seconds`. Raises `LegFailedError`."""
        submit.deadline_milliseconds = min(int(seconds * 1000), _LONGEST_MILLISECONDS)
        try:
            leg = self._fleet.session(worker).submit(submit, partial(self._deliver, worker))
        except WorkerUnreachableError as error:
            raise lost(worker, str(error)) from error
        self._legs[worker.role] = worker, leg
        if worker.role is Role.PREFILL:
            self._holder = worker

    async def next(self) -> RequestEvent:
        """The next event of a running leg. Raises `LegFailedError`, or `ApiError` for what no other worker can cure."""
        while True:
            worker, event = await self._arrivals.get()
            if self._legs.get(worker.role, (None,))[0] is worker:  # not of a leg that has been given up
                break
        if isinstance(event, Lost):
            raise lost(worker, event.reason)
        if event.WhichOneof("change") == "failed":
            raise failed(event.failed, worker, self._holder or worker)
        return event

    def pulled(self) -> None:
        """The batch has the KV: what happens to a prefill worker does not matter any more."""
        if Role.PREFILL in self._legs:
            self._legs.pop(Role.PREFILL)[1].released()

    def end(self, roles: Collection[Role] = tuple(Role)) -> None:
        """Free what the workers hold."""
        for role in roles:
            if role in self._legs:
                self._legs.pop(role)[1].end()

    def _deliver(self, worker: Candidate, event: RequestEvent | Lost) -> None:
        self._arrivals.put_nowait((worker, event))
