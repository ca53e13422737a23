"""One try of a request: a prefill leg, then a decode leg on whichever instance is best when the KV is there.

On a colocated instance it is one leg from the prompt to the end.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from distserve_proto.contract import Role
from distserve_proto.kv_pb2 import KvHandle
from distserve_proto.worker_pb2 import FINISH_REASON_STOP, RequestEvent, Stages, Submit
from distserve_worker.gateway.answer import Answer, Finish
from distserve_worker.gateway.deadlines import Deadlines
from distserve_worker.gateway.errors import deadline_exceeded
from distserve_worker.gateway.failures import Failure, LegFailedError, no_decode, put_back
from distserve_worker.gateway.fleet import Fleet
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.legs import Legs
from distserve_worker.gateway.routing import Candidate, Need


class Attempt:
    """Goes on from what `answer` holds; however it ends, all workers free what they hold for it."""

    def __init__(
        self,
        number: int,
        generation: Generation,
        answer: Answer,
        fleet: Fleet,
        deadlines: Deadlines,
        report: Callable[[LegFailedError], None],
    ) -> None:
        self._id = f"{generation.request_id}.{number}"
        self._generation = generation
        self._answer = answer
        self._fleet = fleet
        self._deadlines = deadlines
        self._report = report
        self._legs = Legs(fleet)
        self._computing = False  # on the worker that is waited for, which has got nowhere with it yet
        self._joined_at: float | None = None
        self._unfinished = Stages()  # of a decode leg that has not said how it ended

    async def run(self, first: Candidate, need: Need) -> None:
        """Produce the rest of the answer. Raises `LegFailedError`, or `ApiError` when no other pair can help."""
        try:
            if first.role is Role.COLOCATED:
                await self._colocated(first)
            else:
                await self._in_two_legs(first, need)
        except LegFailedError as error:
            error.computing = self._computing
            raise
        finally:
            self._legs.end()
            self._record_unfinished()

    async def _colocated(self, worker: Candidate) -> None:
        """The whole rest on one instance."""
        submit = self._submit()
        tokens = len(submit.prompt) + len(submit.output)
        waiting = self._deadlines.prefill(tokens, worker) + self._deadlines.place(worker)
        self._answer.prefill_worker = self._answer.decode_worker = worker.instance
        await self._run_on(worker, submit, waiting)

    async def _in_two_legs(self, prefill: Candidate, need: Need) -> None:
        with self._fleet.heading_for_decode(prefill.compatibility_key):
            handle = await self._prefill(prefill)
        if handle is not None and self._answer.finish is None:
            await self._decode(prefill, handle, need)

    async def _prefill(self, worker: Candidate) -> KvHandle | None:
        """The first new token and where its KV waits; no handle when that token was the last."""
        submit = self._submit()
        seconds = self._deadlines.prefill(len(submit.prompt) + len(submit.output), worker)
        self._answer.prefill_worker, self._answer.decode_worker = worker.instance, None
        self._legs.start(worker, submit, seconds)
        async with _within(seconds, worker):
            while True:
                event = await self._legs.next()
                change = event.WhichOneof("change")
                if change == "started":
                    self._computing = True
                if change == "parked":
                    self._computing = False
                    self._answer.record(event.parked.stages)
                    self._answer.accept(event.tokens, logprobs=event.logprobs)
                    return event.parked.kv
                if change == "finished":
                    self._finish(event)
                    return None

    async def _decode(self, prefill: Candidate, handle: KvHandle, need: Need) -> None:
        """Hand the KV to one decode instance after the other until one has it; then it is bound to that one."""
        failure, avoid = no_decode(prefill), frozenset[str]()
        while True:
            worker = self._fleet.choose_decode(prefill.compatibility_key, need)
            if worker is None:
                raise failure.after(avoid)
            try:
                return await self._decode_on(worker, handle)
            except LegFailedError as error:
                if not self._can_hand_on(error, prefill):
                    raise
                failure = error
            self._report(failure)
            self._legs.end([Role.DECODE])
            avoid |= failure.avoid
            need = replace(need, avoid=need.avoid | {worker.incarnation})

    def _can_hand_on(self, error: LegFailedError, prefill: Candidate) -> bool:
        """Whether the KV is still parked as far as anybody knows."""
        holder_failed = prefill.incarnation in error.avoid and error.failure is not Failure.KV_UNREACHABLE
        return self._joined_at is None and error.failure is not Failure.KV_LOST and not holder_failed

    async def _decode_on(self, worker: Candidate, handle: KvHandle) -> None:
        """Until the KV has been pulled, its lease is renewed and the bound grows with the requests ahead."""
        submit = self._submit()
        submit.kv.CopyFrom(handle)
        self._answer.decode_worker = worker.instance
        await self._run_on(worker, submit, self._deadlines.place(worker))

    async def _run_on(self, worker: Candidate, submit: Submit, waiting: float) -> None:
        """A leg to the end of the answer; it joins the batch within `waiting` seconds."""
        running = self._deadlines.decode(self._longest(worker))
        self._legs.start(worker, submit, waiting + running)
        async with _within(waiting, worker) as limit:
            while self._answer.finish is None:
                event = await self._legs.next()
                if event.WhichOneof("change") == "joined":
                    self._join(event)
                    limit.reschedule(asyncio.get_running_loop().time() + running)
                self._take(event, worker)

    def _longest(self, worker: Candidate) -> int:
        """Tokens that the request can come to: without a limit of its own, those that the instance holds."""
        limit = self._generation.max_tokens
        return worker.max_tokens if limit is None else len(self._generation.prompt) + limit

    def _join(self, event: RequestEvent) -> None:
        self._legs.pulled()
        self._computing = True
        self._joined_at = time.monotonic()
        self._unfinished = event.joined.stages

    def _take(self, event: RequestEvent, worker: Candidate) -> None:
        match event.WhichOneof("change"):
            case "finished":
                self._unfinished = Stages()
                self._finish(event)
            case "started":
                self._computing = True
            case "put_back":
                self._unfinished = Stages()
                self._answer.record(event.put_back.stages)
                raise put_back(worker)
            case _:
                if event.tokens:
                    self._computing = False
                self._answer.accept(event.tokens, logprobs=event.logprobs)

    def _finish(self, event: RequestEvent) -> None:
        self._answer.record(event.finished.stages)
        stopped = event.finished.reason == FINISH_REASON_STOP
        self._answer.accept(event.tokens, Finish.STOP if stopped else Finish.LENGTH, event.logprobs)

    def _submit(self) -> Submit:
        generation = self._generation
        return Submit(
            request_id=self._id,
            prompt=generation.prompt,
            output=self._answer.tokens,
            sampling=generation.sampling,
            stop_token_ids=sorted(generation.stop_token_ids),
            max_tokens=generation.max_tokens,
            prefix_salt=generation.prefix_salt,
        )

    def _record_unfinished(self) -> None:
        """A leg that is cut at a stop string ends without a word: its decode time is taken from here."""
        if self._joined_at is not None and self._unfinished != Stages():
            self._unfinished.decode = time.monotonic() - self._joined_at
            self._answer.record(self._unfinished)


@asynccontextmanager
async def _within(seconds: float, worker: Candidate) -> AsyncIterator[asyncio.Timeout]:
    try:
        async with asyncio.timeout(seconds) as limit:
            yield limit
    except TimeoutError:
        message = f"{worker.instance} did not finish the {worker.role} of this request in time"
        raise deadline_exceeded(message) from None
