"""Log probabilities of chosen and most likely tokens, by the model's own logits."""

from collections.abc import Mapping, Sequence

import torch

from distserve_worker.engine.interface import TokenLogprobs
from distserve_worker.engine.sampling.choice import Choice


def logprobs(
    logits: torch.Tensor, choices: Sequence[Choice], tokens: Sequence[int | None]
) -> Mapping[int, TokenLogprobs]:
    """Of the rows of `logits` [n, vocabulary] that ask for them and have a token; by row.

    They are natural logarithms of the distribution before biases, penalties, temperature and cuts.
    """
    asked = {
        row: (token, min(choice.sampling.logprobs, logits.shape[-1]))
        for row, (choice, token) in enumerate(zip(choices, tokens, strict=True))
        if choice.sampling.logprobs is not None and token is not None
    }
    if not asked:
        return {}
    raw = logits[list(asked)]
    norms = raw.logsumexp(dim=-1, keepdim=True)
    chosen = torch.tensor([token for token, _ in asked.values()], device=raw.device).unsqueeze(-1)
    own = (raw.gather(1, chosen) - norms).squeeze(-1).tolist()
    values, ids = raw.topk(max(count for _, count in asked.values()))
    tops = zip(ids.tolist(), (values - norms).tolist(), strict=True)
    return {
        row: TokenLogprobs(logprob, tuple(_ordered(*top)[:count]))
        for (row, (_, count)), logprob, top in zip(asked.items(), own, tops, strict=True)
    }


def _ordered(ids: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """Most likely first; of equal ones the lower id, as a greedy choice prefers it."""
    return sorted(zip(ids, values, strict=True), key=lambda top: (-top[1], top[0]))
