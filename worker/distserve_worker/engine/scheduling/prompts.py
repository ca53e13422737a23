"""Prompts until their first sample: first come first served, and what is found is not computed again."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.flights import Flights
from distserve_worker.engine.scheduling.interface import Chunk, Step
from distserve_worker.engine.scheduling.prefixes import PrefixKeys
from distserve_worker.engine.scheduling.rules import PromptRules
from distserve_worker.engine.scheduling.tickets import Ticket, Waiting


@dataclass(frozen=True, slots=True)
class _Start:
    """What it takes to begin the oldest waiting prompt."""

    ticket: Ticket
    keys: Sequence[bytes]  # of blocks that hold its beginning already
    found: int  # tokens in them
    blocks: int
    cost: int  # free blocks

    @property
    def new_tokens(self) -> int:
        return len(self.ticket.request.tokens) - self.found


class Prompts:
    """A queue, and the prompts that have begun: they hold blocks for all their tokens."""

    def __init__(self, blocks: BlockManager, flights: Flights, rules: PromptRules, max_waiting: int) -> None:
        self._blocks = blocks
        self._flights = flights
        self._rules = rules
        self._waiting = Waiting("prefill", max_waiting)
        self._begun: dict[str, Ticket] = {}

    @property
    def tokens(self) -> int:
        """Tokens that are not computed, nor on their way to be."""
        pieces = sum(len(ticket.request.tokens) - ticket.computed for ticket in self._begun.values())
        return self._waiting.tokens + pieces

    @property
    def waiting(self) -> int:
        """Prompts that have not begun."""
        return len(self._waiting)

    @property
    def begun(self) -> Collection[Ticket]:
        """Prompts that have begun."""
        return self._begun.values()

    def add(self, request: Request) -> None:
        """Queue a request. Raises `QueueFull`."""
        self._waiting.add(request)

    def put_back(self, ticket: Ticket) -> None:
        """Queue a request again that has lost its blocks: all its tokens are computed again, ahead of younger ones."""
        self._waiting.put_back(ticket)

    def remove(self, request_id: str) -> Ticket | None:
        """Forget a prompt, which keeps its blocks."""
        return self._begun.pop(request_id, None) or self._waiting.remove(request_id)

    def can_fill(self, admits: Callable[[int], bool]) -> bool:
        """Whether `fill` would return anything."""
        if any(ticket.request not in self._flights for ticket in self._begun.values()):
            return True
        start = self._start_of_first()
        return start is not None and admits(start.cost)

    def fill(self, room: int, admits: Callable[[int], bool]) -> tuple[Chunk, ...]:
        """Chunks of up to `room` new tokens together, or one longer prompt alone if prompts are not cut.

        `admits` says whether another prompt may begin that takes so many free blocks.
        """
        chunks: list[Chunk] = []
        for ticket in self._begun.values():
            if self._rules.takes(len(chunks), room) and ticket.request not in self._flights:
                chunks.append(self._cut(ticket, room))
                room -= chunks[-1].stop - chunks[-1].start
        while self._rules.takes(len(chunks), room) and (start := self._start_of_first()) is not None:
            if not admits(start.cost) or (chunks and start.new_tokens > room and not self._rules.cuts):
                break
            chunks.append(self._cut(self._begin(start), room))
            room -= chunks[-1].stop - chunks[-1].start
        return tuple(chunks)

    def finished(self, step: Step) -> Iterator[Ticket]:
        """Prompts that are over with `step`, which is done; from now on their beginnings can be found."""
        for chunk in step.prompts:
            if chunk.samples and (ticket := self._begun.pop(chunk.request.request_id, None)) is not None:
                self.seal(ticket)
                yield ticket

    def seal(self, ticket: Ticket) -> None:
        """Let the beginning of a request be found, as far as tokens were sampled from it.

        What was never sampled from is not shared: it could be the reason why the logits are not finite.
        """
        sampled = len(ticket.request.tokens) - 1
        if sampled >= ticket.computed:
            self._blocks.seal(ticket.request_id, self._keys(ticket).of(sampled))

    def _keys(self, ticket: Ticket) -> PrefixKeys:
        if ticket.keys is None:
            request = ticket.request
            ticket.keys = PrefixKeys(request.tokens, self._blocks.block_tokens, request.salt)
        return ticket.keys

    def _start_of_first(self) -> _Start | None:
        ticket = self._waiting.first
        if ticket is None:
            return None
        keys = self._keys(ticket).of_all_but_the_last()
        keys = keys[: self._blocks.find(keys)]
        blocks = self._blocks.blocks_for(len(ticket.request.tokens))
        return _Start(ticket, keys, len(keys) * self._blocks.block_tokens, blocks, self._blocks.cost(blocks, keys))

    def _begin(self, start: _Start) -> Ticket:
        ticket = self._waiting.take()
        self._blocks.allocate(ticket.request_id, start.blocks, start.keys)
        self._begun[ticket.request_id] = ticket
        ticket.request.stage = Stage.RUNNING
        ticket.computed = start.found
        if ticket.found is None:
            ticket.found = start.found
        return ticket

    def _cut(self, ticket: Ticket, room: int) -> Chunk:
        first, length = ticket.computed, len(ticket.request.tokens)
        ticket.computed = min(length, first + room) if self._rules.cuts else length
        return Chunk(ticket.request, first, ticket.computed, ticket.computed == length, ticket.found or 0)
