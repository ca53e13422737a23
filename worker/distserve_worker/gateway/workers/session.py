"""One attached stream: the legs that run over it and the load behind it. Does no I/O."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from distserve_proto.contract import Role
from distserve_proto.worker_pb2 import (
    PHASE_PREFILL,
    Cancel,
    Description,
    GatewayMessage,
    Load,
    RequestEvent,
    Submit,
    WorkerMessage,
)
from distserve_worker.gateway.routing import Candidate

OUTBOX_MESSAGES = 4096


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream ended under a leg; the worker drops what it held for it."""

    reason: str


class LegState(Enum):
    """How far a leg is, as far as the worker's load is concerned."""

    ACTIVE = "active"  # waits or runs
    PARKED = "parked"  # prefill is over, its KV waits to be pulled
    OVER = "over"  # nothing is held for it any more


Deliver = Callable[[RequestEvent | Lost], None]


class WorkerUnreachableError(Exception):
    """Nothing can be sent to the worker now."""


class Leg:
    """A request on one worker."""

    __slots__ = ("_session", "deliver", "request_id", "state", "tokens")

    def __init__(self, session: "Session", request_id: str, tokens: int, deliver: Deliver) -> None:
        self._session = session
        self.request_id = request_id
        self.tokens = tokens
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
        self._legs: dict[str, Leg] = {}
        self._since_report = 0  # tokens for prefill, requests for decode
        self._broken: str | None = None

    @property
    def role(self) -> Role:
        """What the worker does."""
        return Role.PREFILL if self.description.phase == PHASE_PREFILL else Role.DECODE

    @property
    def idle(self) -> bool:
        """Whether no request needs this stream."""
        return not self._legs

    @property
    def open(self) -> bool:
        """Whether new work can be sent."""
        return self._broken is None and not self.load.draining

    def submit(self, submit: Submit, deliver: Deliver) -> Leg:
        """Start a leg. Raises `WorkerUnreachableError` when the stream is gone or does not take messages any more."""
        if self._broken is not None:
            raise WorkerUnreachableError(self._broken)
        self._send(GatewayMessage(submit=submit))
        leg = Leg(self, submit.request_id, len(submit.prompt) + len(submit.output), deliver)
        self._legs[leg.request_id] = leg
        self._since_report += leg.tokens if self.role is Role.PREFILL else 1
        return leg

    def end(self, leg: Leg) -> None:
        """Forget a leg, and cancel it where the worker still holds something for it."""
        if self._legs.pop(leg.request_id, None) is None or leg.state is LegState.OVER or self._broken is not None:
            return
        try:
            self._send(GatewayMessage(cancel=Cancel(request_id=leg.request_id)))
        except WorkerUnreachableError as error:
            self.close(str(error))

    def receive(self, message: WorkerMessage) -> None:
        """Take the worker's load and hand its events to their legs; events of ended legs are late and dropped."""
        if message.HasField("load"):
            self._report(message.load)
        for event in message.events:
            leg = self._legs.get(event.request_id)
            if leg is not None:
                leg.state = _state_after(event, leg.state)
                leg.deliver(event)

    def close(self, reason: str) -> None:
        """The stream ended: every leg is lost, at once."""
        self._broken = self._broken or reason
        legs, self._legs = self._legs, {}
        for leg in legs.values():
            leg.deliver(Lost(self._broken))

    def candidate(self, last_turn: int) -> Candidate:
        """The worker as routing sees it: what it reported and what it cannot have reported yet."""
        active = [leg for leg in self._legs.values() if leg.state is LegState.ACTIVE]
        requests, queued = self.load.waiting + self.load.running, self.load.queued_tokens
        prefill = self.role is Role.PREFILL
        return Candidate(
            instance=self.instance,
            role=self.role,
            compatibility_key=self.description.compatibility_key,
            max_tokens=min(self.description.max_model_length, self.description.max_request_tokens),
            queued_tokens=max(queued + self._since_report, sum(leg.tokens for leg in active)) if prefill else 0,
            requests=requests if prefill else max(requests + self._since_report, len(active)),
            used_blocks=1 - self.load.free_blocks / max(1, self.load.total_blocks),
            last_turn=last_turn,
        )

    def _report(self, load: Load) -> None:
        self.load = load
        self._since_report = 0

    def _send(self, message: GatewayMessage) -> None:
        try:
            self.outbox.put_nowait(message)
        except asyncio.QueueFull:
            raise WorkerUnreachableError(f"{self.instance} has not read {OUTBOX_MESSAGES} messages") from None


def _state_after(event: RequestEvent, state: LegState) -> LegState:
    change = event.WhichOneof("change")
    if change in ("finished", "failed"):
        return LegState.OVER
    return LegState.PARKED if change == "parked" else state
