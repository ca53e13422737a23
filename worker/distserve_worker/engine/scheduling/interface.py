"""What the three policies have in common: who runs next, in which blocks."""

from dataclasses import dataclass
from typing import Protocol

from distserve_worker.engine.request import Request
from distserve_worker.engine.scheduling.blocks import BlockManager


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, stop) of a request's `tokens` are computed; `samples`: they are the last, the next is wanted.

    `found`: tokens that were in the KV memory already when the request first began, and were not computed for it.
    """

    request: Request
    start: int
    stop: int
    samples: bool
    found: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one micro-batch computes: prompts or pieces of them, and one token for each of the `running`, oldest first.

    `put_back`: requests that leave the engine to make room, before anything of this step is computed; the scheduler has
    forgotten them. A step can consist of them alone.
    """

    prompts: tuple[Chunk, ...] = ()
    running: tuple[Request, ...] = ()
    lane: int = 0
    put_back: tuple[Request, ...] = ()

    @property
    def requests(self) -> tuple[Request, ...]:
        """Requests of which anything is computed."""
        return (*(chunk.request for chunk in self.prompts), *self.running)


class Scheduler(Protocol):
    """Several steps may be on their way (one for each stage); a request is in one of them at most.

    Blocks of a request in a step on its way are not given to anybody else before `done`. The scheduler keeps the
    `stage` of its requests.
    """

    @property
    def blocks(self) -> BlockManager:
        """Who holds which blocks."""
        ...

    @property
    def parks(self) -> bool:
        """Whether a request keeps its blocks and stops after its first sample (a prefill engine)."""
        ...

    @property
    def queued_tokens(self) -> int:
        """Tokens of waiting requests."""
        ...

    @property
    def waiting(self) -> int:
        """Requests that do not run yet."""
        ...

    @property
    def running(self) -> int:
        """Requests that run."""
        ...

    @property
    def parked(self) -> int:
        """Requests that only keep their blocks."""
        ...

    def add(self, request: Request) -> None:
        """Queue a request. Raises `QueueFull`."""
        ...

    def remove(self, request_id: str) -> None:
        """Forget a request at whatever stage, and free its blocks as soon as nothing uses them. Unknown: ignored."""
        ...

    def reserve(self) -> tuple[Request, ...]:
        """Requests that have just got blocks for KV that will be imported; pinned once, until the caller unpins."""
        ...

    def imported(self, request_id: str) -> None:
        """The KV of a reserved request is complete."""
        ...

    def can_run(self) -> bool:
        """Whether `next` or `reserve` has anything to do now; if not, both return nothing."""
        ...

    def next(self) -> Step | None:
        """The next step, its blocks allocated; None when nothing can run before a step is done or a command comes."""
        ...

    def done(self, step: Step) -> None:
        """A step is computed and its samples are appended to their requests' tokens."""
        ...
