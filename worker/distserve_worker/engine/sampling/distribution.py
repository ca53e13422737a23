"""Probabilities that tokens are drawn with: temperature, then top_k, top_p and min_p, as transformers orders them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from distserve_worker.engine.interface import Sampling

# Most nuclei are smaller than this, and finding the largest few is many times cheaper than sorting a vocabulary.
_HEAD: Final = 1024


def distribution(logits: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """Weights [n, vocabulary] in FP32 of the tokens of each row, 0 where they are cut; not normalised after the cuts.

    Without top_k and top_p the vocabulary is not sorted. Of equally likely tokens at the edge those of lower id stay.
    """
    temperatures = torch.tensor([sampling.temperature for sampling in samplings], device=logits.device)
    # relative to the best: large quotients would be rounded to whole numbers
    relative = logits - logits.amax(dim=-1, keepdim=True)
    weights = torch.softmax(relative.div_(temperatures.unsqueeze(-1)), dim=-1)
    _cut_tails(weights, samplings)
    _cut_unlikely(weights, samplings)
    return weights


def _cut_tails(weights: torch.Tensor, samplings: Sequence[Sampling]) -> None:
    """Leave the top_k most likely, and of them the fewest that hold top_p of their probability."""
    vocabulary = weights.shape[-1]
    rows = [row for row, sampling in enumerate(samplings) if sampling.top_p < 1.0 or 0 < sampling.top_k < vocabulary]
    if not rows:
        return
    if weights.device.type != "cpu":
        weights[rows] = sorted_cut(weights[rows], [samplings[row] for row in rows])
        return
    asked = weights if len(rows) == len(weights) else weights[rows]
    heads = asked.topk(_head([samplings[row] for row in rows], vocabulary)).values
    for row, head in zip(rows, heads, strict=True):
        _keep_largest(weights[row], *_kept(head, samplings[row], weights[row]))


def sorted_cut(weights: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """The same for all rows at once: a GPU sorts them sooner than the host could look at each."""
    vocabulary = weights.shape[-1]
    column = [(sampling.top_k or vocabulary, sampling.top_p, float(sampling.top_k > 0)) for sampling in samplings]
    most, top_p, relative = torch.tensor(column, dtype=torch.float64).to(weights.device).unsqueeze(-1).unbind(1)
    falling, tokens = weights.sort(dim=-1, descending=True, stable=True)
    counted = torch.arange(vocabulary, device=weights.device) < most
    shares = torch.where(counted, falling, 0.0).double()
    whole = torch.where(relative > 0, shares.sum(dim=-1, keepdim=True), 1.0)
    kept = counted & ((top_p >= 1.0) | (shares.cumsum(dim=-1) - shares < top_p * whole))
    kept[:, 0] = True
    return torch.zeros_like(weights).scatter_(1, tokens, torch.where(kept, falling, 0.0))


def _head(samplings: Sequence[Sampling], vocabulary: int) -> int:
    """How many of the most likely tokens are looked at first."""
    most = max(sampling.top_k or _HEAD for sampling in samplings)
    return min(most, _HEAD, vocabulary)


def _kept(head: torch.Tensor, sampling: Sampling, row: torch.Tensor) -> tuple[int, torch.Tensor]:
    """How many tokens of a row stay, and the weight of the last of them; `head`: its largest weights, falling."""
    limit = min(sampling.top_k or len(row), len(row))
    if limit > len(head) and (sampling.top_k or float(head.sum()) < sampling.top_p):
        head = _falling(row)
    head = head[:limit]
    if sampling.top_p < 1.0:
        shares = head.double()
        # top_p is a share of what top_k left; a token stays when those before it do not reach the share
        whole = shares.sum() if sampling.top_k else 1.0
        reached = (shares.cumsum(dim=-1) - shares) < sampling.top_p * whole
        limit = max(1, int(reached.count_nonzero()))
    return limit, head[limit - 1]


def _falling(row: torch.Tensor) -> torch.Tensor:
    if row.device.type == "cpu":  # numpy sorts with vector instructions, several times as fast as torch
        return torch.from_numpy(np.sort(row.numpy())).flip(0)
    return row.sort(descending=True).values


def _keep_largest(row: torch.Tensor, count: int, edge: torch.Tensor) -> None:
    """Leave the `count` largest weights of a row, the smallest of which is `edge`."""
    row.masked_fill_(row < edge, 0.0)
    surplus = int(row.count_nonzero()) - count
    if surplus > 0:
        equals = (row == edge).nonzero().squeeze(-1)
        row[equals[-surplus:]] = 0.0


def _cut_unlikely(weights: torch.Tensor, samplings: Sequence[Sampling]) -> None:
    """Leave what has at least the share min_p of the most likely one's probability."""
    if any(sampling.min_p for sampling in samplings):
        shares = torch.tensor([sampling.min_p for sampling in samplings], device=weights.device).unsqueeze(-1)
        weights.masked_fill_(weights < shares * weights.amax(dim=-1, keepdim=True), 0.0)
