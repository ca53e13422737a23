"""Requests that run: spread over lanes, growing block by block, the younger making room for the older."""

from bisect import insort
from collections.abc import Callable, Collection

from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.flights import Flights
from distserve_worker.engine.scheduling.rules import BatchRules
from distserve_worker.engine.scheduling.tickets import Ticket


class Members:
    """The continuous batch. `give_up` takes the blocks of a member that makes room.

    Others, wherever they are asked for, are requests that hold blocks and will run, but do not yet.
    """

    def __init__(
        self,
        blocks: BlockManager,
        flights: Flights,
        rules: BatchRules,
        give_up: Callable[[Ticket], None],
    ) -> None:
        self._blocks = blocks
        self._flights = flights
        self._rules = rules
        self._give_up = give_up
        self._tickets: list[Ticket] = []  # oldest first
        self._sizes = [0] * rules.lanes
        self._turn = 0  # the lane that is looked at first

    def __len__(self) -> int:
        return len(self._tickets)

    def admits(self, cost: int, others: int) -> bool:
        """Whether one more request may have blocks, `cost` free ones, beside the members and so many others.

        What members lack for their next step, as far as that is known, and the spare blocks must stay free.
        """
        seats = len(self._tickets) + others
        left = self._blocks.free_count - cost
        if seats >= self._rules.max_running or left < 0:
            return False
        return not seats or left >= self._rules.spare + self._lacking()

    def join(self, ticket: Ticket) -> None:
        """Take a request in, whose tokens but the last are computed; it goes to the lane with the fewest members."""
        ticket.request.stage = Stage.RUNNING
        ticket.lane = self._sizes.index(min(self._sizes))
        self._sizes[ticket.lane] += 1
        insort(self._tickets, ticket, key=lambda member: member.age)

    def remove(self, request_id: str) -> Ticket | None:
        """Take a request out, which keeps its blocks."""
        for ticket in self._tickets:
            if ticket.request_id == request_id:
                self._take_out(ticket)
                return ticket
        return None

    def can_step(self, others: Collection[int]) -> bool:
        """Whether `make_room` would put anybody back, or else `next_lane` has a step. `others`: their ages."""
        free = self._blocks.free_count
        grounded = self._grounded()
        for ticket in grounded:
            if self._lacks_block(ticket):
                if not free:
                    return ticket is not grounded[-1] or self._may_leave(ticket, others)
                free -= 1
            if not self._flights.has_lane(ticket.lane):
                return True
        return False

    def make_room(self, others: Collection[int]) -> list[Ticket]:
        """Give each member that is in no step the block it lacks, oldest first; returns who was put back for it.

        `others`: their ages.
        The youngest member in no step is put back first. That can be the very one that lacks a block, unless somebody
        younger holds blocks: then it just sits out until that one can be put back.
        """
        put_back: list[Ticket] = []
        grounded = self._grounded()
        place = 0
        while place < len(grounded):
            ticket = grounded[place]
            if not self._lacks_block(ticket):
                place += 1
            elif self._blocks.free_count:
                self._blocks.grow(ticket.request_id)
            elif ticket is not grounded[-1] or self._may_leave(ticket, others):
                put_back.append(self._put_back(grounded.pop()))
            else:
                break
        return put_back

    def next_lane(self) -> tuple[int, tuple[Request, ...]]:
        """The lane whose turn it is, and those of its members that can run, oldest first; nobody when none can."""
        lanes = len(self._sizes)
        for lane in ((self._turn + ahead) % lanes for ahead in range(lanes)):
            if not self._flights.has_lane(lane) and (running := self._able(lane)):
                self._turn = lane + 1
                return lane, running
        return 0, ()

    def _lacking(self) -> int:
        return sum(1 for ticket in self._grounded() if self._lacks_block(ticket))

    def _able(self, lane: int) -> tuple[Request, ...]:
        return tuple(
            ticket.request for ticket in self._tickets if ticket.lane == lane and not self._lacks_block(ticket)
        )

    def _grounded(self) -> list[Ticket]:
        """Members in no step on its way, oldest first."""
        return [ticket for ticket in self._tickets if ticket.request not in self._flights]

    def _lacks_block(self, ticket: Ticket) -> bool:
        request = ticket.request
        return len(request.tokens) > self._blocks.room_of(request.request_id)

    def _may_leave(self, youngest: Ticket, others: Collection[int]) -> bool:
        """Whether everybody else is older than the youngest member in no step, and there is somebody else."""
        ages = [*others, *(ticket.age for ticket in self._tickets if ticket is not youngest)]
        return bool(ages) and max(ages) < youngest.age

    def _put_back(self, ticket: Ticket) -> Ticket:
        self._take_out(ticket)
        self._give_up(ticket)
        return ticket

    def _take_out(self, ticket: Ticket) -> None:
        self._tickets.remove(ticket)
        self._sizes[ticket.lane] -= 1
