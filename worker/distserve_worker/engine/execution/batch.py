"""What one step computes, as plain data: it travels to the ranks in other processes."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens of one request that are computed together, after `start` tokens whose KV is in its blocks already.

    `table`: block indices in token order, enough for all of them. `samples`: the logits of the last token are wanted.
    """

    tokens: tuple[int, ...]
    start: int
    table: tuple[int, ...]
    samples: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Blocks of a running request from place `first` of its table on; what a rank knew of its `seat` ends there."""

    seat: int
    first: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """One new token for each of several requests, whose logits are all wanted.

    Every rank keeps the block table of each request under its seat in the lane; `written` says what is new in them
    since the lane's last batch. `seats`, `tokens` and `positions` have one entry a request, in rising order of
    positions.
    """

    lane: int
    seats: tuple[int, ...]
    written: tuple[Written, ...]
    tokens: tuple[int, ...]
    positions: tuple[int, ...]

    def part(self, some: slice) -> "Running":
        """The same for some of the requests; what is `written` may be written again."""
        return replace(self, seats=self.seats[some], tokens=self.tokens[some], positions=self.positions[some])


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch. Rows of its logits: the prompts that sample, in order, then the running requests, in order."""

    prompts: tuple[Prompt, ...] = ()
    running: Running | None = None
    cleared: tuple[int, ...] = ()  # blocks to zero before: their ends hold what somebody else has left

    @property
    def new_tokens(self) -> int:
        """Rows of the hidden states that travel between stages."""
        return sum(len(prompt.tokens) for prompt in self.prompts) + (len(self.running.tokens) if self.running else 0)

    @property
    def rows(self) -> list[int]:
        """The rows of the hidden states whose logits are wanted."""
        rows, end = [], 0
        for prompt in self.prompts:
            end += len(prompt.tokens)
            if prompt.samples:
                rows.append(end - 1)
        return [*rows, *range(end, self.new_tokens)]
