"""The heart of a worker on the event loop: takes submissions to the engine and what happens there back to gateways."""

import asyncio
import time
from collections.abc import Callable

from distserve_proto import worker_pb2
from distserve_worker.engine.interface import Dropped, PutBack, QueueFull, Refused, Starved, Token, TooLong
from distserve_worker.server.arrivals import Admission, Arrival, Batch, Begun, Exported, Step, Target
from distserve_worker.server.commands import Admit, Command
from distserve_worker.server.legs import Leg, Legs
from distserve_worker.server.metrics import Metrics
from distserve_worker.server.outbox import Outbox
from distserve_worker.server.side import Side
from distserve_worker.server.streams import Streams
from distserve_worker.server.wire import logprobs_message, work_of

_MAX_REQUEST_ID = 256


class Dispatcher:
    """Used on the event loop only; `post` reaches the engine."""

    def __init__(
        self,
        post: Callable[[Command], None],
        side: Side,
        legs: Legs,
        streams: Streams,
        metrics: Metrics,
        max_waiting: int,
    ) -> None:
        self._post = post
        self._side = side
        self._legs = legs
        self._streams = streams
        self._metrics = metrics
        self._max_waiting = max_waiting

    @property
    def idle(self) -> bool:
        """Whether nobody needs this worker any more: no leg, no parked KV, no transfer."""
        return not len(self._legs) and not self._side.busy

    @property
    def load(self) -> worker_pb2.Load:
        """What the worker has to do right now."""
        return self._streams.load

    def attach(self) -> Outbox:
        """A gateway's stream begins. Raises `TooManyStreams`."""
        return self._streams.open()

    def detach(self, outbox: Outbox) -> None:
        """A stream has ended, for whatever reason: so do its legs."""
        self._streams.close(outbox)
        for leg in self._legs.of(outbox):
            self._abandon(leg)

    def submit(self, outbox: Outbox, submit: worker_pb2.Submit) -> None:
        """A gateway submits a leg; whatever is wrong with it becomes its `Failed` event."""
        outbox.submits_taken += 1
        refusal = self._refusal(outbox, submit)
        if refusal is not None:
            self._legs.refuse(outbox, submit.request_id, *refusal)
            self._streams.flush()
            return
        leg = self._legs.add(outbox, submit.request_id, time.monotonic())
        self._streams.submitted(leg.key, len(submit.prompt) + len(submit.output))
        self._post(Admit(work_of(submit, leg.key)))
        self._side.begin(leg, submit)
        if submit.deadline_milliseconds:
            seconds = submit.deadline_milliseconds / 1000
            leg.deadline = asyncio.get_running_loop().call_later(seconds, self._overdue, leg, seconds)
        self._streams.flush()

    def cancel(self, outbox: Outbox, request_id: str) -> None:
        """A gateway does not need a leg any more."""
        leg = self._legs.find(outbox, request_id)
        if leg is not None:
            self._abandon(leg)

    def hear(self, batch: Batch) -> None:
        """The engine tells what happened: at most one message for each stream comes of it."""
        for arrival in batch.arrivals:
            self._take(arrival, batch.step)
        if batch.step is not None:
            self._metrics.steps.inc()
        self._metrics.show(batch.load)
        self._streams.update(batch.load)
        self._streams.flush()

    def drain(self) -> None:
        """Take no new requests from now on."""
        self._streams.drain()
        self._streams.flush()

    def close(self) -> None:
        """Let every stream end after what is queued on it."""
        self._streams.close_all()

    def fail_all(self, code: worker_pb2.FailureCode.ValueType, text: str) -> None:
        """End every leg with the same failure."""
        for leg in self._legs.all():
            self._fail(leg, code, text)
        self._streams.flush()

    def _refusal(
        self, outbox: Outbox, submit: worker_pb2.Submit
    ) -> tuple[worker_pb2.FailureCode.ValueType, str] | None:
        counted_on = self._streams.is_from_before_drain(outbox) and self._side.is_counted_on(submit)
        if self._streams.draining and not counted_on:
            return worker_pb2.FAILURE_CODE_DRAINING, "the worker is draining and takes no new work"
        objection = _id_objection(submit.request_id) or self._side.objection(submit)
        if objection is None and self._legs.find(outbox, submit.request_id) is not None:
            objection = f"request_id: {submit.request_id} is served on this stream already"
        if objection is not None:
            return worker_pb2.FAILURE_CODE_INVALID, objection
        if self._streams.pending >= self._max_waiting:
            text = f"{self._streams.pending} requests wait to be admitted, which is the limit"
            return worker_pb2.FAILURE_CODE_QUEUE_FULL, text
        return None

    def _take(self, arrival: Arrival, step: Step | None) -> None:
        if isinstance(arrival, Admission):
            self._streams.answered(arrival.key)
        leg = self._legs.get(_key_of(arrival))
        if leg is None:
            return  # cancelled meanwhile; its `Drop` is on the way
        match arrival:
            case Admission(_, refusal):
                if refusal is not None:
                    self._fail(leg, _code_of(refusal), str(refusal))
            case Begun() | Token():
                self._progress(leg, arrival, step)
            case Exported() | Target():
                self._side.take(leg, arrival)
            case PutBack() | Dropped() | Starved():
                self._leave(leg, arrival)

    def _progress(self, leg: Leg, arrival: Begun | Token, step: Step | None) -> None:
        match arrival:
            case Begun(_, cached_tokens, at):
                leg.started = at
                leg.stages.prefill_queue = at - leg.received
                leg.stages.cached_tokens = cached_tokens
                leg.event.started.SetInParent()
            case Token():
                assert step is not None, "tokens come from steps"
                self._token(leg, arrival, step)

    def _leave(self, leg: Leg, arrival: PutBack | Dropped | Starved) -> None:
        match arrival:
            case PutBack():
                self._legs.put_back(leg)
                self._side.drop(leg.key)
            case Dropped(_, message):
                self._fail(leg, worker_pb2.FAILURE_CODE_NOT_FINITE, message)
            case Starved(_, message):
                self._fail(leg, worker_pb2.FAILURE_CODE_INTERNAL, message)

    def _token(self, leg: Leg, token: Token, step: Step) -> None:
        self._metrics.tokens.inc()
        leg.event.tokens.append(token.token)
        if token.logprobs is not None:
            leg.event.logprobs.append(logprobs_message(token.logprobs))
        self._side.clock(leg, step)
        if token.finish is not None:
            self._legs.finish(leg, token.finish)

    def _overdue(self, leg: Leg, seconds: float) -> None:
        self._fail(leg, worker_pb2.FAILURE_CODE_DEADLINE, f"not finished {seconds:g} s after it was received")
        self._streams.flush()

    def _fail(self, leg: Leg, code: worker_pb2.FailureCode.ValueType, text: str) -> None:
        self._legs.fail(leg, code, text)
        self._side.drop(leg.key)

    def _abandon(self, leg: Leg) -> None:
        self._legs.remove(leg)
        self._side.drop(leg.key)


def _id_objection(request_id: str) -> str | None:
    if not request_id:
        return "request_id: is empty"
    if len(request_id) > _MAX_REQUEST_ID:
        return f"request_id: has {len(request_id)} characters, at most {_MAX_REQUEST_ID} are taken"
    return None


def _key_of(arrival: Arrival) -> str:
    match arrival:
        case Exported(parked):
            return parked.request_id
        case Admission(key, _) | Target(key, _):
            return key
        case Begun(key) | Token(key) | PutBack(key) | Dropped(key) | Starved(key):
            return key


def _code_of(refusal: Refused) -> worker_pb2.FailureCode.ValueType:
    match refusal:
        case QueueFull():
            return worker_pb2.FAILURE_CODE_QUEUE_FULL
        case TooLong():
            return worker_pb2.FAILURE_CODE_TOO_LONG
        case _:
            return worker_pb2.FAILURE_CODE_INVALID
