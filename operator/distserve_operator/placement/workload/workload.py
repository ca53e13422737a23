"""A workload: lengths, arrivals and the longest request that the model takes, from which sample paths are drawn."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from distserve_operator.placement.workload.arrivals import Arrivals, Poisson
from distserve_operator.placement.workload.errors import WorkloadError
from distserve_operator.placement.workload.lengths import Empirical, Fixed, Lengths, LogNormal, drawn, first
from distserve_operator.placement.workload.path import Numbers, Path

ARRIVALS, PROMPTS, OUTPUTS = range(3)
MEAN_SEED: Final = 0
MEAN_REQUESTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Workload:
    """What comes to the model. `longest` is its context in tokens, prompt and output together; None: without a bound.

    Fixed and recorded lengths above `longest` are an error, since somebody meant them; the tail of a lognormal is
    clipped to it, the prompt first. `mean_prompt` and `mean_output` are of what is simulated, so after clipping.
    `bound` is what people call the field that sets `longest`; None: the model itself does.
    """

    lengths: Lengths
    arrivals: Arrivals = field(default_factory=Poisson)
    longest: int | None = None
    bound: str | None = field(default=None, compare=False)
    mean_prompt: float = field(init=False, compare=False)
    mean_output: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.longest is not None:
            _check_fit(self.lengths, self.longest, self.bound)
        prompts, outputs = self._all()
        object.__setattr__(self, "mean_prompt", float(prompts.mean()))
        object.__setattr__(self, "mean_output", float(outputs.mean()))

    def sample(self, seed: int, count: int) -> Path:
        """`count` requests at one a second; the same for equal seeds, and fewer are a prefix of more."""
        prompts, outputs = drawn(self.lengths, _stream(seed, PROMPTS), _stream(seed, OUTPUTS), count)
        return self._path(seed, prompts, outputs)

    def first(self, seed: int, count: int) -> Path:
        """As `sample`, but recorded lengths in their order (from the start again when there are too few)."""
        if isinstance(self.lengths, LogNormal):
            return self.sample(seed, count)
        return self._path(seed, *first(self.lengths, count))

    def _path(self, seed: int, prompts: Numbers, outputs: Numbers) -> Path:
        arrivals = np.cumsum(self.arrivals.gaps(_stream(seed, ARRIVALS), len(prompts)))
        return Path(arrivals, *_clipped(prompts, outputs, self.longest))

    def _all(self) -> tuple[Numbers, Numbers]:
        """Lengths with the means of the whole; a clipped lognormal has no simple ones, so many are drawn."""
        match self.lengths:
            case Fixed():
                return first(self.lengths, 1)
            case Empirical(pairs):
                return first(self.lengths, len(pairs))
            case LogNormal():
                streams = (_stream(MEAN_SEED, PROMPTS), _stream(MEAN_SEED, OUTPUTS))
                return _clipped(*drawn(self.lengths, *streams, MEAN_REQUESTS), self.longest)


def _stream(seed: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose,))))


def _clipped(prompts: Numbers, outputs: Numbers, longest: int | None) -> tuple[Numbers, Numbers]:
    if longest is None:
        return prompts, outputs
    prompts = np.minimum(prompts, longest - 1)
    return prompts, np.minimum(outputs, longest - prompts)


def _check_fit(lengths: Lengths, longest: int, bound: str | None) -> None:
    """Raises WorkloadError for a request that the model cannot take."""
    match lengths:
        case Fixed(prompt, output):
            _check_request("a request", prompt, output, longest, bound)
        case LogNormal():
            _check_request("the mean request", lengths.mean_in, lengths.mean_out, longest, bound)
        case Empirical(pairs):
            for place, (prompt, output) in enumerate(pairs):
                _check_request(f"the request of {lengths.where(place)}", prompt, output, longest, bound)


def _check_request(what: str, prompt: float, output: float, longest: int, bound: str | None) -> None:
    if prompt + output <= longest:
        return
    most, other = f"the model's context of {longest}", "choose a model with a longer context"
    if bound is not None:
        most, other = bound, "raise that"
    raise WorkloadError(f"{what} has {prompt:g} + {output:g} tokens, more than {most}: make it shorter or {other}")
