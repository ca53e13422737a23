"""A request on its way through a scheduler, and the bounded queue in which it waits."""

from bisect import insort
from dataclasses import dataclass

from distserve_worker.engine.interface import QueueFull
from distserve_worker.engine.request import Request
from distserve_worker.engine.scheduling.prefixes import PrefixKeys


@dataclass(slots=True, eq=False)
class Ticket:
    """A request and what its scheduler knows of it. Equal only to itself."""

    request: Request
    age: int  # place in the order of arrival: the smaller, the older
    lane: int = 0  # of a request that runs
    computed: int = 0  # tokens of a prompt whose KV is in its blocks
    found: int | None = None  # of those, the ones that were there when the request first began
    keys: PrefixKeys | None = None  # of a prompt

    @property
    def request_id(self) -> str:
        """The id of its request."""
        return self.request.request_id


class Waiting:
    """Tickets in order of arrival; `limit` bounds those that come from outside, `phase` names it in errors."""

    def __init__(self, phase: str, limit: int) -> None:
        self.tokens = 0
        self._phase = phase
        self._limit = limit
        self._arrived = 0
        self._tickets: list[Ticket] = []  # oldest first

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def first(self) -> Ticket | None:
        """The oldest."""
        return self._tickets[0] if self._tickets else None

    def add(self, request: Request) -> None:
        """Queue a request as the youngest. Raises `QueueFull`."""
        if len(self._tickets) >= self._limit:
            raise QueueFull(f"{len(self._tickets)} requests wait for {self._phase}, which is the limit")
        self._tickets.append(Ticket(request, self._arrived))
        self._arrived += 1
        self.tokens += len(request.tokens)

    def put_back(self, ticket: Ticket) -> None:
        """Queue a request again that has been taken out before: it keeps its place in the order of arrival."""
        insort(self._tickets, ticket, key=lambda waiting: waiting.age)
        self.tokens += len(ticket.request.tokens)

    def take(self) -> Ticket:
        """Take the oldest out."""
        ticket = self._tickets.pop(0)
        self.tokens -= len(ticket.request.tokens)
        return ticket

    def remove(self, request_id: str) -> Ticket | None:
        """Take a request out."""
        for place, ticket in enumerate(self._tickets):
            if ticket.request_id == request_id:
                del self._tickets[place]
                self.tokens -= len(ticket.request.tokens)
                return ticket
        return None
