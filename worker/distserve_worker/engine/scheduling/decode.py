"""Decode: continuous batching of requests whose KV is imported (paper, section 4.3), to memory or to a bound."""

from distserve_worker.engine.interface import Refused
from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.flights import Flights
from distserve_worker.engine.scheduling.interface import Step
from distserve_worker.engine.scheduling.members import Members
from distserve_worker.engine.scheduling.rules import BatchRules
from distserve_worker.engine.scheduling.tickets import Ticket, Waiting


class DecodeScheduler:
    """The policy of a decode worker; see `interface.Scheduler`.

    A request goes waiting → reserved (its KV is on the way) → running. It begins with blocks for the tokens it has.
    """

    parks = False
    parked = 0

    def __init__(self, blocks: BlockManager, rules: BatchRules, max_waiting: int) -> None:
        self.blocks = blocks
        self._flights = Flights(blocks)
        self._waiting = Waiting("decode", max_waiting)
        self._reserved: dict[str, Ticket] = {}
        self._members = Members(blocks, self._flights, rules, lambda ticket: blocks.free(ticket.request_id))

    @property
    def queued_tokens(self) -> int:
        """See `Scheduler.queued_tokens`."""
        return self._waiting.tokens

    @property
    def waiting(self) -> int:
        """See `Scheduler.waiting`; those whose KV is on the way count too."""
        return len(self._waiting) + len(self._reserved)

    @property
    def running(self) -> int:
        """See `Scheduler.running`."""
        return len(self._members)

    def add(self, request: Request) -> None:
        """See `Scheduler.add`."""
        if not request.position:
            raise Refused("a decode leg needs the token that prefill sampled")
        assert self.blocks.blocks_for(request.limit - 1) <= self.blocks.total, f"{request.request_id} never fits"
        self._waiting.add(request)

    def remove(self, request_id: str) -> None:
        """See `Scheduler.remove`."""
        ticket = (
            self._waiting.remove(request_id) or self._reserved.pop(request_id, None) or self._members.remove(request_id)
        )
        if ticket is not None:
            self._flights.free(ticket.request)

    def reserve(self) -> tuple[Request, ...]:
        """See `Scheduler.reserve`."""
        taken: list[Request] = []
        while self._admits_first():
            ticket = self._waiting.take()
            self._reserved[ticket.request_id] = ticket
            self.blocks.allocate(ticket.request_id, self.blocks.blocks_for(len(ticket.request.tokens)))
            self.blocks.pin(ticket.request_id)
            ticket.request.stage = Stage.RESERVED
            taken.append(ticket.request)
        return tuple(taken)

    def imported(self, request_id: str) -> None:
        """See `Scheduler.imported`."""
        assert request_id in self._reserved, f"{request_id} is not reserved"
        self._members.join(self._reserved.pop(request_id))

    def can_run(self) -> bool:
        """See `Scheduler.can_run`."""
        return self._members.can_step(self._importing()) or self._admits_first()

    def next(self) -> Step | None:
        """See `Scheduler.next`."""
        put_back = tuple(ticket.request for ticket in self._members.make_room(self._importing()))
        lane, running = self._members.next_lane()
        if not running and not put_back:
            return None
        return self._flights.begin(Step(running=running, lane=lane, put_back=put_back))

    def done(self, step: Step) -> None:
        """See `Scheduler.done`."""
        self._flights.end(step)

    def _importing(self) -> list[int]:
        return [ticket.age for ticket in self._reserved.values()]

    def _admits_first(self) -> bool:
        """Whether the oldest waiting request may have blocks."""
        ticket = self._waiting.first
        if ticket is None:
            return False
        return self._members.admits(self.blocks.blocks_for(len(ticket.request.tokens)), len(self._reserved))
