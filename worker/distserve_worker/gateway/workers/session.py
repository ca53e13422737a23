"""One attached stream: the legs that run over it and the load behind it. Does no I/O."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from distserve_proto.contract import Role
from distserve_proto.worker_pb2 import (
    PHASE_COLOCATED,
    PHASE_DECODE,
    PHASE_PREFILL,
    Cancel,
    Description,
    GatewayMessage,
    RequestEvent,
    Submit,
    WorkerMessage,
)
from distserve_worker.gateway.routing import Candidate

OUTBOX_MESSAGES = 4096
_ROLES = {PHASE_PREFILL: Role.PREFILL, PHASE_DECODE: Role.DECODE, PHASE_COLOCATED: Role.COLOCATED}


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream ended under a leg; the worker drops what it held for it."""

    reason: str


class LegState(Enum):
    """What the worker holds for a leg."""

    ACTIVE = "active"  # waits or runs
    PARKED = "parked"  # prefill is over, its KV waits to be pulled
    OVER = "over"  # nothing is held for it any more


Deliver = Callable[[RequestEvent | Lost], None]


class WorkerUnreachableError(Exception):
    """Nothing can be sent to the worker now."""


class Leg:
    """A request on one worker."""

    __slots__ = ("_session", "deliver", "number", "request_id", "state", "tokens")

    def __init__(self, session: "Session", number: int, submit: Submit, deliver: Deliver) -> None:
        self._session = session
        self.number = number  # of the submission on its stream
        self.request_id = submit.request_id
        self.tokens = len(submit.prompt) + len(submit.output)
        self.deliver = deliver
        self.state = LegState.ACTIVE

    def released(self) -> None:
        """The parked KV has been pulled: what happens to this worker does not matter any more."""
        self.state = LegState.OVER
        self.end()

    def end(self) -> None:
        """Make the worker free what it holds, unless it has already; no event comes after this."""
        self._session.end(self)


class Session:
    """Requests of this gateway on one boot of one worker."""

    def __init__(self, instance: str, description: Description) -> None:
        self.instance = instance
        self.description = description
        self.load = description.load
        self.outbox: asyncio.Queue[GatewayMessage] = asyncio.Queue(OUTBOX_MESSAGES)
        self.ended = asyncio.Event()
        self._legs: dict[str, Leg] = {}
        self._submitted = 0
        self._taken = 0  # submissions that `load` knows of
        self._broken: str | None = None

    @property
    def role(self) -> Role:
        """What the worker does."""
        return _ROLES[self.description.phase]

    @property
    def idle(self) -> bool:
        """Whether no request needs this stream."""
        return not self._legs

    def submit(self, submit: Submit, deliver: Deliver) -> Leg:
        """Start a leg. Raises `WorkerUnreachableError` when the stream is gone or does not take messages any more."""
        if self._broken is not None:
            raise WorkerUnreachableError(self._broken)
        self._send(GatewayMessage(submit=submit))
        self._submitted += 1
        leg = self._legs[submit.request_id] = Leg(self, self._submitted, submit, deliver)
        return leg

    def end(self, leg: Leg) -> None:
        """Forget a leg, and cancel it where the worker still holds something for it."""
        if self._legs.pop(leg.request_id, None) is None or leg.state is LegState.OVER or self._broken is not None:
            return
        with contextlib.suppress(WorkerUnreachableError):
            self._send(GatewayMessage(cancel=Cancel(request_id=leg.request_id)))

    def receive(self, message: WorkerMessage) -> None:
        """Take the worker's load and hand its events to their legs; events of ended legs are late and dropped."""
        if message.HasField("load"):
            self.load, self._taken = message.load, message.submits_taken
        for event in message.events:
            leg = self._legs.get(event.request_id)
            if leg is not None:
                leg.state = _state_after(event, leg.state)
                leg.deliver(event)

    def close(self, reason: str) -> None:
        """The stream has ended, or must: every leg is lost, at once."""
        self._broken = self._broken or reason
        self.ended.set()
        legs, self._legs = self._legs, {}
        for leg in legs.values():
            leg.deliver(Lost(self._broken))

    def candidate(self, last_turn: int, *, retired: bool) -> Candidate:
        """The worker as routing sees it: what it reported, and what it did not know of when it did."""
        unknown = [leg for leg in self._legs.values() if leg.number > self._taken]
        description, load = self.description, self.load
        return Candidate(
            instance=self.instance,
            incarnation=description.incarnation,
            role=self.role,
            compatibility_key=description.compatibility_key,
            max_tokens=min(description.max_model_length, description.max_request_tokens),
            queued_tokens=load.queued_tokens + sum(leg.tokens for leg in unknown),
            requests=load.waiting + load.running + len(unknown),
            parked=load.parked,
            places=description.max_waiting + description.max_running or None,
            used_blocks=1 - load.free_blocks / max(1, load.total_blocks),
            leaving=retired or load.draining,
            last_turn=last_turn,
        )

    def _send(self, message: GatewayMessage) -> None:
        try:
            self.outbox.put_nowait(message)
        except asyncio.QueueFull:
            # whatever could not be said stays unsaid: only the end of the stream makes the worker drop everything
            self.close(f"{self.instance} has not read {OUTBOX_MESSAGES} messages")
            raise WorkerUnreachableError(self._broken) from None


def _state_after(event: RequestEvent, state: LegState) -> LegState:
    change = event.WhichOneof("change")
    if change in ("finished", "failed", "put_back"):
        return LegState.OVER
    return LegState.PARKED if change == "parked" else state
