"""An engine without a model around a scheduler: it notes which tokens' KV would be where, and checks every step."""

from collections import deque
from dataclasses import dataclass, field

from distserve_worker.engine.interface import Work
from distserve_worker.engine.request import Request, Stage
from distserve_worker.engine.scheduling.blocks import BlockManager
from distserve_worker.engine.scheduling.interface import Chunk, Scheduler, Step

TOKENS = 3  # so few that texts meet again


def request_of(request_id: str, prompt: list[int], new: int, salt: str = "", output: tuple[int, ...] = ()) -> Request:
    """A request that ends after `new` tokens more."""
    work = Work(request_id, tuple(prompt), output=output, prefix_salt=salt)
    return Request(work, limit=len(prompt) + len(output) + new)


def next_token(request: Request) -> int:
    """What the model says; equal beginnings have equal continuations."""
    return (sum(request.tokens) + len(request.tokens)) % TOKENS


@dataclass(eq=False)
class DrivenScheduler:
    """Does what its test says, in any order; every method checks what must hold whatever was done before."""

    scheduler: Scheduler
    max_running: int | None = None
    step_tokens: int | None = None  # the most new tokens of prompts in one step
    cuts: bool = False
    failing: frozenset[str] = frozenset()  # requests whose first logits here are not finite
    flights: deque[Step] = field(default_factory=deque)
    importing: list[Request] = field(default_factory=list)
    living: dict[str, Request] = field(default_factory=dict)  # in order of arrival
    ended: list[str] = field(default_factory=list)
    put_back: list[Request] = field(default_factory=list)
    returned: int = 0  # times that a request was put back
    found: int = 0  # tokens that were not computed
    _memory: dict[tuple[int, int], int] = field(default_factory=dict)
    _owners: dict[str, Request] = field(default_factory=dict)
    _ages: dict[Request, int] = field(default_factory=dict)

    @property
    def blocks(self) -> BlockManager:
        return self.scheduler.blocks

    def add(self, request: Request) -> None:
        self.scheduler.add(request)
        self.living[request.request_id] = self._owners[request.request_id] = request
        self._ages[request] = len(self._ages)
        self.check()

    def cancel(self, request_id: str) -> None:
        """End a request wherever it is; its import may go on."""
        del self.living[request_id]
        self.scheduler.remove(request_id)
        self.ended.append(request_id)
        self.check()

    def reserve(self) -> int:
        """How many requests got blocks for their KV."""
        could_run = self.scheduler.can_run()
        waiting = self._waiting()
        taken = self.scheduler.reserve()
        assert list(taken) == waiting[: len(taken)], "somebody overtook"
        assert could_run or not taken
        assert all(request.stage is Stage.RESERVED for request in taken)
        self.importing += taken
        self.check()
        return len(taken)

    def finish_import(self, choice: int) -> None:
        """The KV of one reserved request arrives, also when the request has been cancelled meanwhile."""
        request = self.importing.pop(choice % len(self.importing))
        self._write(request, 0, len(request.tokens) - 1)
        self.blocks.unpin(request.request_id)
        if request.request_id in self.living:
            self.scheduler.imported(request.request_id)
            assert request.stage is Stage.RUNNING
        self.check()

    def next(self) -> Step | None:
        """Let the next step set out."""
        could_run, before = self.scheduler.can_run(), self._by_stage()
        step = self.scheduler.next()
        requeued = [request for request in self._waiting() if request in before[Stage.RUNNING]]
        self.returned += len(requeued)
        if step is None:
            assert not could_run or requeued or self.reserve(), "can_run promised something"
        else:
            assert could_run
            self._check_step(step, before)
            self._put_back(step)
            if step.requests:
                self.flights.append(step)
        self.check()
        return step

    def done(self) -> None:
        """The oldest step on its way is computed and sampled, and requests that are over are removed."""
        step = self.flights.popleft()
        computed = [*step.prompts, *(_newest(request) for request in step.running)]
        for chunk in computed:
            self._check_read(chunk)
            self._write(chunk.request, chunk.start, chunk.stop)
        over = [chunk.request for chunk in computed if chunk.samples and self._sample(chunk.request)]
        self.scheduler.done(step)
        for request in over:
            self.cancel(request.request_id)
        self.check()

    def run_to_the_end(self, depth: int) -> None:
        """Step, import and release until every request has ended; puts requests that left back in again, too."""
        for _ in range(5000):
            if not self.living:
                return
            moved = self.reserve()
            while self.importing:
                self.finish_import(0)
            while len(self.flights) < depth and self.next() is not None:
                moved += 1
            if self.flights:
                self.done()
                moved += 1
            moved += self.release_parked() + self.send_again()
            assert moved, f"nothing moves, and {list(self.living)} wait"
        raise AssertionError(f"no end in sight for {list(self.living)}")

    def finish_flights(self) -> None:
        """End what is left of cancelled requests."""
        while self.flights:
            self.done()
        while self.importing:
            self.finish_import(0)

    def release_parked(self) -> int:
        """End all requests whose KV only waits; how many."""
        parked = self._by_stage()[Stage.PARKED]
        assert len(parked) == self.scheduler.parked
        for request in parked:
            self._check_read(Chunk(request, len(request.tokens) - 1, len(request.tokens) - 1, samples=False))
            self.cancel(request.request_id)
        return len(parked)

    def send_again(self) -> int:
        """Requests that left come back from prefill with one more token, those that end with it do not; how many."""
        returned, self.put_back = self.put_back, []
        for old in returned:
            output = (*old.tokens[len(old.work.prompt) :], next_token(old))
            request = request_of(old.request_id, list(old.work.prompt), 0, old.salt, output)
            request.limit = old.limit
            if len(request.tokens) < old.limit:
                self.add(request)
            else:
                self.ended.append(old.request_id)
        return len(returned)

    def check(self) -> None:
        """Every block is held or free; requests share only blocks of the same tokens at the same place."""
        holders: dict[int, list[tuple[int, Request]]] = {}
        generations: dict[int, int] = {}
        for request_id, request in self._owners.items():
            if self.blocks.owns(request_id):
                for place, ref in enumerate(self.blocks.blocks_of(request_id)):
                    holders.setdefault(ref.index, []).append((place, request))
                    assert generations.setdefault(ref.index, ref.generation) == ref.generation
        assert len(holders) + self.blocks.free_count == self.blocks.total
        for index, ((place, request), *others) in holders.items():
            for other_place, other in others:
                end = (place + 1) * self.blocks.block_tokens
                assert place == other_place, f"block {index} is in two places"
                assert (request.salt, request.tokens[:end]) == (other.salt, other.tokens[:end])
        seats = [request_id for request_id in self.living if self.blocks.owns(request_id)]
        assert self.max_running is None or len(seats) <= self.max_running

    def _check_step(self, step: Step, before: dict[Stage, list[Request]]) -> None:
        new_tokens = sum(chunk.stop - chunk.start for chunk in step.prompts)
        if self.step_tokens is not None and step.prompts:
            alone = not self.cuts and len(step.prompts) == 1
            assert alone or new_tokens + len(step.running) <= self.step_tokens
        flying = {request for flight in self.flights for request in flight.requests}
        assert not flying.intersection((*step.requests, *step.put_back))
        assert len(set(step.requests)) == len(step.requests)
        assert list(step.running) == sorted(step.running, key=self._ages.__getitem__)
        assert all(flight.lane != step.lane for flight in self.flights if flight.running and step.running)
        begun = [chunk.request for chunk in step.prompts if chunk.request in before[Stage.WAITING]]
        waited = sorted(
            {*before[Stage.WAITING], *self._waiting(), *begun}.difference(step.put_back), key=self._ages.__getitem__
        )
        assert begun == [request for request in waited if request in begun] == waited[: len(begun)], "somebody overtook"
        for chunk in (*step.prompts, *(_newest(request) for request in step.running)):
            assert self.blocks.room_of(chunk.request.request_id) >= chunk.stop
            assert chunk.request.stage is Stage.RUNNING
            assert chunk.start < chunk.stop
            self._check_read(chunk)
        self.found += sum(chunk.start for chunk in step.prompts if chunk.request in begun)

    def _put_back(self, step: Step) -> None:
        flying = {request for flight in self.flights for request in flight.requests}
        for request in step.put_back:
            del self.living[request.request_id]
            assert not self.blocks.owns(request.request_id)
        grounded = set(self._by_stage()[Stage.RUNNING]) - flying
        youngest_left = max((self._ages[request] for request in grounded), default=-1)
        assert all(self._ages[request] > youngest_left for request in step.put_back)
        self.put_back += step.put_back
        self.returned += len(step.put_back)

    def _sample(self, request: Request) -> bool:
        """Append the next token; whether the request is over and still here."""
        is_here = self.living.get(request.request_id) is request
        if request.request_id in self.failing:
            return is_here
        request.tokens.append(next_token(request))
        return is_here and len(request.tokens) >= request.limit

    def _waiting(self) -> list[Request]:
        return self._by_stage()[Stage.WAITING]

    def _by_stage(self) -> dict[Stage, list[Request]]:
        return {stage: [request for request in self.living.values() if request.stage is stage] for stage in Stage}

    def _check_read(self, chunk: Chunk) -> None:
        for position in range(chunk.start):
            where, mark = self._place(chunk.request, position)
            assert self._memory.get(where) == mark, f"{chunk.request.request_id} reads what is not its own"

    def _write(self, request: Request, start: int, stop: int) -> None:
        for position in range(start, stop):
            where, mark = self._place(request, position)
            self._memory[where] = mark

    def _place(self, request: Request, position: int) -> tuple[tuple[int, int], int]:
        place, offset = divmod(position, self.blocks.block_tokens)
        block = self.blocks.blocks_of(request.request_id)[place]
        return (block.index, offset), hash((request.salt, tuple(request.tokens[: position + 1])))


def _newest(request: Request) -> Chunk:
    return Chunk(request, len(request.tokens) - 1, len(request.tokens), samples=True)
