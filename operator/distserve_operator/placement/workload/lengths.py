"""How many tokens requests have: the same for all, lognormal, or as somebody recorded them."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.path import Floats, Numbers

MOST_TOKENS: Final = 10_000_000  # of a prompt, and of an output
MOST_VARIATION: Final = 100.0


@dataclass(frozen=True, slots=True)
class Fixed:
    """All requests are equal."""

    prompt: int
    output: int

    def __post_init__(self) -> None:
        _check("prompt", self.prompt, 1, MOST_TOKENS)
        _check("output", self.output, 1, MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Prompt and output independent of each other, each lognormal, in whole tokens and at least 1.

    `cv_in` and `cv_out` are coefficients of variation (standard deviation / mean); 0 makes all equal.
    """

    mean_in: float
    cv_in: float
    mean_out: float
    cv_out: float

    def __post_init__(self) -> None:
        _check("mean of prompts", self.mean_in, 1, MOST_TOKENS)
        _check("variation of prompts", self.cv_in, 0, MOST_VARIATION)
        _check("mean of outputs", self.mean_out, 1, MOST_TOKENS)
        _check("variation of outputs", self.cv_out, 0, MOST_VARIATION)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Recorded pairs (prompt, output). Pairs stay pairs: long prompts often have their own kind of output.

    `lines` are where they stand in their file; empty: they come from none.
    """

    pairs: tuple[tuple[int, int], ...]
    lines: tuple[int, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.pairs:
            raise WorkloadError("there are no lengths: give at least one pair of prompt and output tokens")
        for place, (prompt, output) in enumerate(self.pairs):
            _check(f"prompt of {self.where(place)}", prompt, 1, MOST_TOKENS)
            _check(f"output of {self.where(place)}", output, 1, MOST_TOKENS)

    def where(self, place: int) -> str:
        """What to call the pair at a place, counted from 0, for people."""
        return f"line {self.lines[place]}" if self.lines else f"row {place + 1}"


Lengths = Fixed | LogNormal | Empirical


def drawn(
    lengths: Lengths, prompts: np.random.Generator, outputs: np.random.Generator, count: int
) -> tuple[Numbers, Numbers]:
    """Prompts and outputs of `count` requests, pairs with replacement; of equal streams fewer are a prefix of more."""
    match lengths:
        case Fixed():
            return first(lengths, count)
        case LogNormal():
            return (
                _lognormal(prompts, lengths.mean_in, lengths.cv_in, count),
                _lognormal(outputs, lengths.mean_out, lengths.cv_out, count),
            )
        case Empirical(pairs):
            return _columns(np.array(pairs)[prompts.integers(len(pairs), size=count)])


def first(lengths: Fixed | Empirical, count: int) -> tuple[Numbers, Numbers]:
    """The first `count` in their order, from the start again when there are fewer."""
    match lengths:
        case Fixed(prompt, output):
            return np.full(count, prompt), np.full(count, output)
        case Empirical(pairs):
            return _columns(np.array(pairs)[np.arange(count) % len(pairs)])


def _columns(table: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[Numbers, Numbers]:
    return table[:, 0].copy(), table[:, 1].copy()


def _lognormal(stream: np.random.Generator, mean: float, variation: float, count: int) -> Numbers:
    sigma = math.sqrt(math.log1p(variation**2))
    tokens: Floats = np.exp(math.log(mean) - sigma**2 / 2 + sigma * stream.standard_normal(count))
    return np.rint(np.clip(tokens, 1, MOST_TOKENS)).astype(np.int64)


def _check(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # NaN is not between any two numbers
        raise WorkloadError(f"the {what} is {value}: expected {least:,.0f} to {most:,.0f}")
