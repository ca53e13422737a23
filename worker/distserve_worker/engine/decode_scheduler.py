"""Which requests get blocks and which run in the next decode step: first come first served, nobody overtakes."""

from collections import deque
from dataclasses import dataclass

from distserve_worker.engine.interface import QueueFull


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request without blocks: how many it needs for its whole life, and its tokens so far."""

    request_id: str
    blocks: int
    tokens: int


class DecodeScheduler:
    """A request goes waiting → reserved (its KV is on the way) → running; each stage keeps the order of arrival."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._waiting: deque[Waiting] = deque()
        self._reserved: dict[str, bool] = {}  # in order of arrival; whether the KV is there
        self._running: list[str] = []
        self.queued_tokens = 0

    @property
    def waiting(self) -> int:
        """Requests that do not run yet."""
        return len(self._waiting) + len(self._reserved)

    @property
    def running(self) -> tuple[str, ...]:
        """The batch, oldest first."""
        return tuple(self._running)

    def add(self, request: Waiting) -> None:
        """Queue `request`. Raises `QueueFull`."""
        if len(self._waiting) >= self._max_waiting:
            raise QueueFull(f"{len(self._waiting)} requests wait for decode, which is the limit")
        self._waiting.append(request)
        self.queued_tokens += request.tokens

    def remove(self, request_id: str) -> None:
        """Forget a request at whatever stage. Unknown ids are ignored."""
        self._reserved.pop(request_id, None)
        if request_id in self._running:
            self._running.remove(request_id)
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                self.queued_tokens -= request.tokens
                return

    def can_reserve(self, free_blocks: int) -> bool:
        """Whether `reserve` would return anything."""
        return bool(self._waiting) and self._waiting[0].blocks <= free_blocks

    def reserve(self, free_blocks: int) -> tuple[Waiting, ...]:
        """Take those off the queue's head whose whole life fits into `free_blocks`."""
        taken: list[Waiting] = []
        while self.can_reserve(free_blocks):
            request = self._waiting.popleft()
            self.queued_tokens -= request.tokens
            free_blocks -= request.blocks
            self._reserved[request.request_id] = False
            taken.append(request)
        return tuple(taken)

    def imported(self, request_id: str) -> None:
        """The KV of a reserved request is complete."""
        assert request_id in self._reserved, f"{request_id} is not reserved"
        self._reserved[request_id] = True

    def can_run(self) -> bool:
        """Whether `batch` would return anything."""
        return bool(self._running) or any(self._reserved.values())

    def batch(self) -> tuple[str, ...]:
        """Let imported requests join, oldest first, up to the bound; return the batch of the next step."""
        ready = [request_id for request_id, is_imported in self._reserved.items() if is_imported]
        for request_id in ready[: self._max_running - len(self._running)]:
            del self._reserved[request_id]
            self._running.append(request_id)
        return self.running
