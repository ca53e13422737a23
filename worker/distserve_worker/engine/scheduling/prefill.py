"""Prefill: batches of prompts up to L_m new tokens (paper, section 4.3), whose KV stays parked until it is pulled."""

from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.flights import Flights
from distserve_worker.engine.scheduling.interface import Step
from distserve_worker.engine.scheduling.prompts import Prompts
from distserve_worker.engine.scheduling.rules import PromptRules
from distserve_worker.engine.scheduling.tickets import Ticket


class PrefillScheduler:
    """The policy of a prefill worker; see `interface.Scheduler`. A prompt begins when all its blocks are free."""

    parks = True

    def __init__(self, blocks: BlockManager, rules: PromptRules, max_waiting: int) -> None:
        self.blocks = blocks
        self._rules = rules
        self._flights = Flights(blocks)
        self._prompts = Prompts(blocks, self._flights, rules, max_waiting)
        self._parked: dict[str, Ticket] = {}

    @property
    def queued_tokens(self) -> int:
        """See `Scheduler.queued_tokens`."""
        return self._prompts.tokens

    @property
    def waiting(self) -> int:
        """See `Scheduler.waiting`."""
        return self._prompts.waiting

    @property
    def running(self) -> int:
        """See `Scheduler.running`."""
        return len(self._prompts.begun)

    @property
    def parked(self) -> int:
        """See `Scheduler.parked`."""
        return len(self._parked)

    def add(self, request: Request) -> None:
        """See `Scheduler.add`."""
        assert self.blocks.blocks_for(len(request.tokens)) <= self.blocks.total, f"{request.request_id} never fits"
        self._prompts.add(request)

    def remove(self, request_id: str) -> None:
        """See `Scheduler.remove`."""
        ticket = self._parked.pop(request_id, None) or self._prompts.remove(request_id)
        if ticket is not None:
            self._flights.free(ticket.request)

    def reserve(self) -> tuple[Request, ...]:
        """Nothing is imported here."""
        return ()

    def imported(self, request_id: str) -> None:
        """Nothing is imported here."""

    def can_run(self) -> bool:
        """See `Scheduler.can_run`."""
        return self._prompts.can_fill(self._admits)

    def next(self) -> Step | None:
        """See `Scheduler.next`."""
        chunks = self._prompts.fill(self._rules.step_tokens, self._admits)
        return self._flights.begin(Step(prompts=chunks)) if chunks else None

    def done(self, step: Step) -> None:
        """See `Scheduler.done`."""
        self._flights.end(step)
        for ticket in self._prompts.finished(step):
            ticket.request.stage = Stage.PARKED
            self._parked[ticket.request_id] = ticket

    def _admits(self, cost: int) -> bool:
        return cost <= self.blocks.free_count
