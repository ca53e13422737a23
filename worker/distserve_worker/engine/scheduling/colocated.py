"""Both phases in one engine: prompts go first, or pieces of them ride on the steps of running requests."""

from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.flights import Flights
from distserve_worker.engine.scheduling.interface import Chunk, Step
from distserve_worker.engine.scheduling.members import Members
from distserve_worker.engine.scheduling.prompts import Prompts
from distserve_worker.engine.scheduling.rules import BatchRules, PromptRules
from distserve_worker.engine.scheduling.tickets import Ticket


class ColocatedScheduler:
    """The policy of a colocated worker; see `interface.Scheduler`.

    Whole prompts: whenever one has room, the next step is a batch of prompts, and running requests wait. Since a stream
    of prompts that end with their first token would keep them waiting for ever, they have a turn after `max_running`
    prompts at the latest. Prompts in pieces: a step has one token of every running request of its lane, and is filled
    up with tokens of prompts.

    A request that is put back keeps its place in the order of arrival, so it is the first to begin again.
    """

    parks = False
    parked = 0

    def __init__(self, blocks: BlockManager, prompt_rules: PromptRules, rules: BatchRules, max_waiting: int) -> None:
        self.blocks = blocks
        self._rules = rules
        self._prompt_rules = prompt_rules
        self._flights = Flights(blocks)
        self._prompts = Prompts(blocks, self._flights, prompt_rules, max_waiting)
        self._members = Members(blocks, self._flights, rules, self._give_up)
        self._passed_over = 0  # prompts begun since running requests had a step

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
        """See `Scheduler.running`; prompts that have begun count too."""
        return len(self._members) + len(self._prompts.begun)

    def add(self, request: Request) -> None:
        """See `Scheduler.add`."""
        assert self.blocks.blocks_for(request.limit - 1) <= self.blocks.total, f"{request.request_id} never fits"
        self._prompts.add(request)

    def remove(self, request_id: str) -> None:
        """See `Scheduler.remove`; what it has computed can still be found."""
        if (ticket := self._members.remove(request_id)) is not None:
            self._prompts.seal(ticket)
            self._flights.free(ticket.request)
        elif (ticket := self._prompts.remove(request_id)) is not None:
            self._flights.free(ticket.request)

    def reserve(self) -> tuple[Request, ...]:
        """Nothing is imported here."""
        return ()

    def imported(self, request_id: str) -> None:
        """Nothing is imported here."""

    def can_run(self) -> bool:
        """See `Scheduler.can_run`."""
        return self._members.can_step(self._computing()) or self._prompts.can_fill(self._admits)

    def next(self) -> Step | None:
        """See `Scheduler.next`."""
        for ticket in self._members.make_room(self._computing()):
            ticket.request.stage = Stage.WAITING
            self._prompts.put_back(ticket)
        step = self._mixed() if self._prompt_rules.cuts else self._prompts_first()
        return self._flights.begin(step) if step.requests else None

    def done(self, step: Step) -> None:
        """See `Scheduler.done`."""
        self._flights.end(step)
        for ticket in self._prompts.finished(step):
            self._members.join(ticket)

    def _mixed(self) -> Step:
        lane, running = self._members.next_lane()
        return Step(self._fill(self._prompt_rules.step_tokens - len(running)), running, lane)

    def _prompts_first(self) -> Step:
        if self._passed_over < self._rules.max_running and (step := self._batch()).prompts:
            return step
        lane, running = self._members.next_lane()
        self._passed_over = 0
        return Step(running=running, lane=lane) if running else self._batch()

    def _batch(self) -> Step:
        chunks = self._fill(self._prompt_rules.step_tokens)
        self._passed_over += len(chunks)
        return Step(prompts=chunks)

    def _fill(self, room: int) -> tuple[Chunk, ...]:
        return self._prompts.fill(room, self._admits)

    def _admits(self, cost: int) -> bool:
        return self._members.admits(cost, len(self._prompts.begun))

    def _computing(self) -> list[int]:
        return [ticket.age for ticket in self._prompts.begun]

    def _give_up(self, ticket: Ticket) -> None:
        self._prompts.seal(ticket)
        self.blocks.free(ticket.request_id)
