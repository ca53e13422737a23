"""Which mixed steps are worth measuring: decode steps that carry a prompt, the ones with the least work first."""

from dataclasses import dataclass
from typing import Final

from distserve_worker.measuring.batches import ROOM, Bounds

OUTPUT: Final = 8  # tokens that what decodes is admitted for, more than a visit has steps
STEP_TOKENS: Final = 1024  # of the engine's steps: any mix below is one step, and so is the prefill of what decodes

_REQUESTS: Final = (4, 16)
_CONTEXT: Final = (
    17  # one more than a whole block, which later visits find again: little is computed before what counts
)
_BEFORE: Final = (0, 128)
_CHUNKS: Final = (32, 128, 512)


@dataclass(frozen=True, slots=True)
class Mix:
    """So many requests, each with a prompt of `context` tokens, and `chunk` tokens of a prompt after its first ones."""

    requests: int
    context: int
    before: int  # tokens of the prompt that are computed already
    chunk: int

    @property
    def work(self) -> tuple[int, ...]:
        """What the time of a visit grows with, each at most in proportion: attention is a small part of it."""
        return self.requests, self.requests * self.context, self.before + self.chunk

    def __str__(self) -> str:
        return f"{self.requests} requests with {self.chunk} tokens of a prompt"


def mixes(bounds: Bounds) -> list[Mix]:
    """All that an engine within `bounds` can take."""
    every = (
        Mix(requests, _CONTEXT, before, chunk) for chunk in _CHUNKS for before in _BEFORE for requests in _REQUESTS
    )
    return sorted((mix for mix in every if _fits(mix, bounds)), key=lambda mix: (mix.before + mix.chunk, mix.requests))


def _fits(mix: Mix, bounds: Bounds) -> bool:
    lengths = [mix.context + OUTPUT] * mix.requests + [mix.before + mix.chunk + ROOM]
    blocks = sum(-(-length // bounds.block_tokens) for length in lengths)
    return max(lengths) <= bounds.longest and blocks <= bounds.blocks
