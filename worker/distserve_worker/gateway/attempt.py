"""One try of a request on one pair of workers: the prefill leg, then the decode leg."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from distserve_proto.contract import Role
from distserve_proto.kv_pb2 import KvHandle
from distserve_proto.worker_pb2 import FINISH_REASON_STOP, RequestEvent, Stages, Submit
from distserve_worker.gateway.answer import Answer, Finish
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.errors import deadline_exceeded
from distserve_worker.gateway.failures import Failure, LegFailedError, failed
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.routing import Pair
from distserve_worker.gateway.workers.session import Leg, Lost, WorkerUnreachableError

Arrival = tuple[Role, RequestEvent | Lost]


class Attempt:
    """Goes on from what `answer` holds; however it ends, both workers free what they hold for it."""

    def __init__(self, number: int, generation: Generation, answer: Answer, pair: Pair) -> None:
        self._id = f"{generation.request_id}.{number}"
        self._generation = generation
        self._answer = answer
        self._instances = {Role.PREFILL: pair.prefill, Role.DECODE: pair.decode}
        # bounded by construction: a leg sends one event per token at most
        self._arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        self._legs: dict[Role, Leg] = {}
        self._joined_at = 0.0
        self._unfinished = Stages()  # of a decode leg that has not said how it ended

    async def run(self, fleet: Fleet, deadlines: Deadlines) -> None:
        """Produce the rest of the answer. Raises `LegFailedError`, or `ApiError` when no other pair can help."""
        try:
            handle = await self._prefill(fleet, deadlines)
            if handle is not None and self._answer.finish is None:
                await self._decode(handle, fleet, deadlines)
        finally:
            for leg in self._legs.values():
                leg.end()
            self._record_unfinished()

    async def _prefill(self, fleet: Fleet, deadlines: Deadlines) -> KvHandle | None:
        """The first new token and where its KV waits; no handle when that token was the last."""
        submit = self._submit()
        tokens = len(submit.prompt) + len(submit.output)
        queued = fleet.queued_tokens(self._instances[Role.PREFILL])
        seconds = deadlines.leg(tokens + queued)
        self._start(Role.PREFILL, submit, fleet, seconds)
        async with self._within(seconds, Role.PREFILL):
            while True:
                event = await self._next()
                change = event.WhichOneof("change")
                if change == "parked":
                    self._answer.record(event.parked.stages)
                    self._answer.accept(event.tokens)
                    return event.parked.kv
                if change == "finished":
                    self._finish(event)
                    return None

    async def _decode(self, handle: KvHandle, fleet: Fleet, deadlines: Deadlines) -> None:
        submit = self._submit()
        submit.kv.CopyFrom(handle)
        longest = fleet.longest_request() or len(submit.prompt)
        tokens = self._generation.max_tokens or max(1, longest - len(submit.prompt))
        seconds = deadlines.leg(len(submit.prompt) + tokens)
        self._start(Role.DECODE, submit, fleet, seconds)
        async with self._within(seconds, Role.DECODE):
            while self._answer.finish is None:
                self._take(await self._next())

    def _take(self, event: RequestEvent) -> None:
        change = event.WhichOneof("change")
        if change == "joined":
            self._legs[Role.PREFILL].released()
            self._joined_at = time.monotonic()
            self._unfinished = event.joined.stages
        if change == "finished":
            self._unfinished = Stages()
            self._finish(event)
        else:
            self._answer.accept(event.tokens)

    def _finish(self, event: RequestEvent) -> None:
        self._answer.record(event.finished.stages)
        stopped = event.finished.reason == FINISH_REASON_STOP
        self._answer.accept(event.tokens, Finish.STOP if stopped else Finish.LENGTH)

    def _submit(self) -> Submit:
        generation = self._generation
        return Submit(
            request_id=self._id,
            prompt=generation.prompt,
            output=self._answer.tokens,
            sampling=generation.sampling,
            stop_token_ids=sorted(generation.stop_token_ids),
            max_tokens=generation.max_tokens,
        )

    def _start(self, role: Role, submit: Submit, fleet: Fleet, seconds: float) -> None:
        submit.deadline_milliseconds = int(seconds * 1000)
        instance = self._instances[role]
        try:
            self._legs[role] = fleet.session(instance).submit(submit, partial(self._deliver, role))
        except WorkerUnreachableError as error:
            raise LegFailedError(Failure.STREAM_LOST, instance, str(error)) from error

    def _deliver(self, role: Role, event: RequestEvent | Lost) -> None:
        self._arrivals.put_nowait((role, event))

    @asynccontextmanager
    async def _within(self, seconds: float, role: Role) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            instance = self._instances[role]
            raise deadline_exceeded(f"{instance} did not finish the {role} of this request in {seconds:g} s") from None

    async def _next(self) -> RequestEvent:
        """The next event of either leg; the loss of one leg counts even while the other is awaited."""
        role, event = await self._arrivals.get()
        if isinstance(event, Lost):
            raise LegFailedError(Failure.STREAM_LOST, self._instances[role], event.reason)
        if event.WhichOneof("change") == "failed":
            raise failed(event.failed, self._instances[role])
        return event

    def _record_unfinished(self) -> None:
        """A leg that is cut at a stop string ends without a word: its decode time is taken from here."""
        if self._joined_at and self._unfinished != Stages():
            self._unfinished.decode = time.monotonic() - self._joined_at
            self._answer.record(self._unfinished)
