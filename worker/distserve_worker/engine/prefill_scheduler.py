"""Which requests the next prefill batch runs: first come first served, up to L_m new tokens (paper, section 4.1)."""

from collections import deque
from dataclasses import dataclass

from distserve_worker.engine.interface import QueueFull


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits: how many tokens it brings and how many blocks it needs."""

    request_id: str
    tokens: int
    blocks: int


class PrefillScheduler:
    """A bounded queue and the rule that cuts batches off its head; nobody overtakes."""

    def __init__(self, max_batch_tokens: int, max_waiting: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._max_waiting = max_waiting
        self._queue: deque[Waiting] = deque()
        self.queued_tokens = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: Waiting) -> None:
        """Queue `request`. Raises `QueueFull`."""
        if len(self._queue) >= self._max_waiting:
            raise QueueFull(f"{len(self._queue)} requests wait for prefill, which is the limit")
        self._queue.append(request)
        self.queued_tokens += request.tokens

    def remove(self, request_id: str) -> None:
        """Forget a waiting request. Unknown ids are ignored."""
        for request in self._queue:
            if request.request_id == request_id:
                self._queue.remove(request)
                self.queued_tokens -= request.tokens
                return

    def can_run(self, free_blocks: int) -> bool:
        """Whether `next_batch` would return anything."""
        return bool(self._queue) and self._queue[0].blocks <= free_blocks

    def next_batch(self, free_blocks: int) -> tuple[str, ...]:
        """Take the next batch off the queue: it fits `free_blocks`, and L_m unless it is one long prompt alone."""
        batch: list[str] = []
        room = self._max_batch_tokens
        while self.can_run(free_blocks) and (not batch or self._queue[0].tokens <= room):
            request = self._queue.popleft()
            self.queued_tokens -= request.tokens
            room -= request.tokens
            free_blocks -= request.blocks
            batch.append(request.request_id)
        return tuple(batch)
