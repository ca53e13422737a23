"""What one step computes, as plain data: it is pickled to the ranks in other processes."""

from dataclasses import dataclass


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
class Running:
    """One new token for each of several requests, whose logits are all wanted.

    `positions` rise. A lane's tables are sent when they change; `version` says which of them count.
    """

    lane: int
    version: int
    tables: tuple[tuple[int, ...], ...] | None  # None: those of the same lane and version that were sent before
    tokens: tuple[int, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch. Rows of its logits: the prompts that sample, in order, then the running requests, in order."""

    prompts: tuple[Prompt, ...] = ()
    running: Running | None = None
    cleared: tuple[int, ...] = ()  # blocks to zero before: they are written for the first time

    @property
    def new_tokens(self) -> int:
        """Rows of the hidden states that travel between stages."""
        running = len(self.running.tokens) if self.running is not None else 0
        return sum(len(prompt.tokens) for prompt in self.prompts) + running
