"""Which steps are worth measuring, the ones with the least work first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from distserve_proto.contract import MAX_RUNNING
from distserve_worker.measuring.messages import Phase

MOST_REQUESTS: Final = MAX_RUNNING  # of a decode batch; what a worker takes that is told nothing else
MOST_TOKENS: Final = 8192  # of a prefill batch; beyond it plans extrapolate
ROOM: Final = 2  # tokens that a request is admitted for beyond the lengths measured

# Prompts of a batch, tokens of the shortest ones, and the factor from one length to the next. With many short prompts
# most of a step would be the choice of tokens, which is no work of the model.
_PROMPTS: Final = ((1, 4, 2), (4, 32, 4), (16, 32, 4))
_REQUESTS: Final = (1, 2, 4, 8, 16, 32, MOST_REQUESTS)
_CONTEXTS: Final = (32, 256, 2048)  # mean tokens of a request


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: the tokens of each prompt, or of each context in the order of size."""

    phase: Phase
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Of all requests."""
        return sum(self.lengths)

    @property
    def squares(self) -> int:
        """Sum of the squared lengths."""
        return sum(length * length for length in self.lengths)

    def __str__(self) -> str:
        return f"{self.phase} of {len(self.lengths)} requests, {self.tokens} tokens"

    @property
    def work(self) -> tuple[int, int]:
        """What the step's time grows with (paper, appendix A), each at most in proportion."""
        return self.tokens, self.squares if self.phase == "prefill" else len(self.lengths)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine can take: tokens of one request, and blocks of KV."""

    longest: int
    blocks: int
    block_tokens: int

    def hold(self, batch: Batch) -> bool:
        """Whether the engine admits the batch and has KV memory for it."""
        wanted = [length + ROOM for length in batch.lengths]
        blocks = sum(-(-length // self.block_tokens) for length in wanted)
        return max(wanted) <= self.longest and blocks <= self.blocks


def prefill_batches(bounds: Bounds) -> list[Batch]:
    """One prompt, and several of the same length: they tell tokens and squared lengths apart."""
    return _rising(
        bounds,
        (
            Batch("prefill", (length,) * prompts)
            for prompts, shortest, factor in _PROMPTS
            for length in _powers(shortest, factor, MOST_TOKENS // prompts)
        ),
    )


def decode_batches(bounds: Bounds) -> list[Batch]:
    """Contexts from half to one and a half times their mean: real batches are mixed, and padding costs time."""
    return _rising(bounds, (Batch("decode", _mixed(requests, mean)) for mean in _CONTEXTS for requests in _REQUESTS))


def _powers(first: int, factor: int, last: int) -> Iterator[int]:
    value = first
    while value <= last:
        yield value
        value *= factor


def _mixed(requests: int, mean: int) -> tuple[int, ...]:
    return tuple(round(mean * (0.5 + (place + 0.5) / requests)) for place in range(requests))


def _rising(bounds: Bounds, batches: Iterable[Batch]) -> list[Batch]:
    return sorted(filter(bounds.hold, batches), key=lambda batch: (batch.tokens, *batch.work))
