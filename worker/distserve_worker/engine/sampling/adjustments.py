"""What a request's own parameters do to its logits before temperature: biases, penalties, withheld stop tokens.

The order is vLLM's: biases, the repetition penalty, frequency and presence, withheld tokens. All rows of a step are
changed together, and only at the tokens concerned.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from distserve_worker.engine.sampling.choice import Choice
from distserve_worker.engine.sampling.seen import SeenTokens

_Places = tuple[int, npt.NDArray[np.int64]]  # a row and tokens of it


def adjusted(logits: torch.Tensor, choices: Sequence[Choice]) -> torch.Tensor:
    """The logits [n, vocabulary] that tokens are chosen from; `logits` itself, unchanged, when no row asks for it."""
    asking = [(row, choice) for row, choice in enumerate(choices) if choice.adjusts]
    if not asking:
        return logits
    changed = logits.clone(memory_format=torch.contiguous_format)
    _add_biases(changed, [(row, choice) for row, choice in asking if len(choice.biases)])
    _penalize(changed, [(row, choice, choice.seen) for row, choice in asking if choice.seen is not None])
    _withhold(changed, [(row, choice.withheld) for row, choice in asking])
    return changed


def _add_biases(logits: torch.Tensor, rows: Sequence[tuple[int, Choice]]) -> None:
    if rows:
        places = _flat(logits, [(row, choice.bias_tokens) for row, choice in rows])
        biases = np.concatenate([choice.biases for _, choice in rows])
        logits.view(-1).index_add_(0, places, _moved(biases, logits))


def _penalize(logits: torch.Tensor, rows: Sequence[tuple[int, Choice, SeenTokens]]) -> None:
    """A logit above 0 is divided by the repetition penalty, one below is multiplied; the others are subtracted."""
    if not rows:
        return
    places = _flat(logits, [(row, seen.tokens) for row, _, seen in rows])
    counts = _moved(np.concatenate([seen.counts for _, _, seen in rows]), logits)
    sizes = [len(seen.tokens) for _, _, seen in rows]
    samplings = [choice.sampling for _, choice, _ in rows]
    repetition = _spread([sampling.repetition_penalty for sampling in samplings], sizes, logits)
    frequency = _spread([sampling.frequency_penalty for sampling in samplings], sizes, logits)
    presence = _spread([sampling.presence_penalty for sampling in samplings], sizes, logits)
    values = logits.view(-1)[places]
    values = torch.where(values > 0, values / repetition, values * repetition)
    logits.view(-1)[places] = values - frequency * counts - presence * (counts > 0)


def _withhold(logits: torch.Tensor, rows: Sequence[_Places]) -> None:
    logits.view(-1).index_fill_(0, _flat(logits, rows), -torch.inf)


def _flat(logits: torch.Tensor, rows: Sequence[_Places]) -> torch.Tensor:
    """Where these tokens are when all rows are laid out one after the other."""
    return _moved(np.concatenate([row * logits.shape[-1] + tokens for row, tokens in rows]), logits)


def _spread(values: Sequence[float], sizes: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
    """Each value as often as its row has places."""
    return _moved(np.repeat(np.array(values, dtype=np.float32), sizes), logits)


def _moved(array: npt.NDArray[np.int64] | npt.NDArray[np.float32], logits: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array).to(logits.device)
