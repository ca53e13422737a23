"""Chooses the next token of each request of a step from its logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from distserve_worker.engine.interface import TokenLogprobs
from distserve_worker.engine.sampling.adjustments import adjusted
from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.distribution import distribution
from distserve_worker.engine.sampling.draw import draw, runners, times
from distserve_worker.engine.sampling.logprobs import logprobs

# Rows are drawn a few at a time, so that their weights stay in the cache of a CPU, and take little memory of a GPU.
_ELEMENTS_AT_ONCE: Final = {"cpu": 2**18}
_ELEMENTS_ELSEWHERE: Final = 2**22


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token of one row; `logprobs` when they were asked for."""

    token: int
    logprobs: TokenLogprobs | None = None


def sample(logits: torch.Tensor, choices: Sequence[Choice]) -> list[Sampled | None]:
    """Next token of each row of `logits` [n, vocabulary] in FP32; None where the row is not finite.

    A row's token is a function of that row and its choice alone, whatever else is in the batch.
    """
    # A sum is finite only if every logit is, and costs a tenth of looking at each.
    finite = logits.sum(dim=-1).isfinite().tolist()
    chosen = _chosen(adjusted(logits, choices), choices)
    tokens = [token if sound else None for token, sound in zip(chosen, finite, strict=True)]
    told = logprobs(logits, choices, tokens)
    return [None if token is None else Sampled(token, told.get(row)) for row, token in enumerate(tokens)]


def _chosen(logits: torch.Tensor, choices: Sequence[Choice]) -> list[int]:
    drawing = [row for row, choice in enumerate(choices) if not choice.greedy]
    chosen: list[int] = [0] * len(choices) if len(drawing) == len(choices) else logits.argmax(dim=-1).tolist()
    at_once = max(1, _ELEMENTS_AT_ONCE.get(logits.device.type, _ELEMENTS_ELSEWHERE) // logits.shape[-1])
    for start in range(0, len(drawing), at_once):
        rows = drawing[start : start + at_once]
        for row, token in zip(rows, _drawn(logits, rows, choices), strict=True):
            chosen[row] = token
    return chosen


def _drawn(logits: torch.Tensor, rows: Sequence[int], choices: Sequence[Choice]) -> list[int]:
    own = [choices[row] for row in rows]
    weights = distribution(logits[rows], [choice.sampling for choice in own])
    count = runners(weights.shape[-1])
    drawn: list[int] = draw(weights, [times(choice.sampling.seed, choice.position, count) for choice in own]).tolist()
    return drawn
