"""Chooses the next token of each request from its logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from distserve_worker.engine.interface import Sampling

# Most nuclei are smaller than this, and finding the largest few is many times cheaper than sorting a vocabulary.
_HEAD: Final = 1024
# Below it the most likely token has all of the probability in FP32, and dividing by it may overflow.
_GREEDY_BELOW: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Choice:
    """How one row is sampled: the parameters, and the position in the output of the token to be chosen."""

    sampling: Sampling
    position: int


def sample(logits: torch.Tensor, choices: Sequence[Choice]) -> list[int | None]:
    """Next token of each row of `logits` [n, vocab] in FP32; None where the row is not finite.

    A row's token is a function of that row and its choice alone, whatever else is in the batch.
    """
    greedy = logits.argmax(dim=-1).tolist()
    # A sum is finite only if every logit is, and costs a tenth of looking at each.
    finite = logits.sum(dim=-1).isfinite().tolist()
    return [_choose(logits[row], choice, greedy[row]) if finite[row] else None for row, choice in enumerate(choices)]


def uniform(seed: int, position: int) -> float:
    """A random number in [0, 1) that depends on nothing but `seed` and `position`."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


def _choose(logits: torch.Tensor, choice: Choice, greedy: int) -> int:
    """Inverse CDF over the kept tokens, the most likely first."""
    if choice.sampling.temperature < _GREEDY_BELOW:
        return greedy
    probabilities = torch.softmax((logits - logits[greedy]) / choice.sampling.temperature, dim=-1)
    kept, tokens = _kept(probabilities, choice.sampling)
    cumulative = kept.double().cumsum(dim=-1)
    target = uniform(choice.sampling.seed, choice.position) * cumulative[-1]
    index = int(torch.searchsorted(cumulative, target, right=True))
    return int(tokens[min(index, len(tokens) - 1)])


def _kept(probabilities: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities, falling, and ids of the tokens that top_k and then top_p leave."""
    values, tokens = _largest(probabilities, sampling)
    if sampling.top_p >= 1.0:
        return values, tokens
    # top_p is a share of what top_k left; a token stays when those before it do not reach the share
    whole = values.sum() if sampling.top_k else 1.0
    before = values.cumsum(dim=-1) - values
    keep = max(1, int((before < sampling.top_p * whole).sum()))
    return values[:keep], tokens[:keep]


def _largest(probabilities: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """At least those that top_k and top_p may keep, without sorting the vocabulary where that can be avoided."""
    vocabulary = len(probabilities)
    if sampling.top_k:
        return probabilities.topk(min(sampling.top_k, vocabulary))
    if sampling.top_p < 1.0:
        values, tokens = probabilities.topk(min(_HEAD, vocabulary))
        if float(values.sum()) >= sampling.top_p:
            return values, tokens
    return probabilities.topk(vocabulary)
