"""How much of a batch a rank computes at once, and a batch cut into that: what a step computes in stays small."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from distserve_worker.engine.execution.batch import Batch, Prompt

TILE: Final = 256  # new tokens of a prompt that are attended with one mask, so that masks stay small beside the KV


@dataclass(frozen=True, slots=True)
class StepBounds:
    """What a rank does at once. `tokens`: new tokens of prompts; None: all of a batch.

    `gathered_blocks`: KV that is copied for running requests, if one of them alone has no more; None: as many as the
    cache has.
    """

    tokens: int | None = None
    gathered_blocks: int | None = None


def portions(batch: Batch, tokens: int | None) -> Iterator[Batch]:
    """A batch as several that are computed in turn, none with more than `tokens` new ones of prompts (None: all).

    Only a prompt that is longer is cut; what follows in it attends to what was stored before. All portions together
    have the rows of the batch, in its order; its running requests are in the last, and nothing is `cleared` again.
    """
    if tokens is None:
        yield Batch(batch.prompts, batch.running)
        return
    chosen: list[Prompt] = []
    room = tokens
    for prompt in batch.prompts:
        for piece in _pieces(prompt, tokens):
            if len(piece.tokens) > room:
                yield Batch(tuple(chosen))
                chosen, room = [], tokens
            chosen.append(piece)
            room -= len(piece.tokens)
    yield Batch(tuple(chosen), batch.running)


def _pieces(prompt: Prompt, tokens: int) -> Iterator[Prompt]:
    count = len(prompt.tokens)
    for at in range(0, count, tokens):
        stop = min(count, at + tokens)
        yield Prompt(prompt.tokens[at:stop], prompt.start + at, prompt.table, prompt.samples and stop == count)
