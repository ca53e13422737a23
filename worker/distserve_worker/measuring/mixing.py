"""Runs a decode step alone and then with a prompt on it, on a colocated engine that is empty before and after."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from distserve_worker.engine.interface import Engine, Sampling, Started, Work
from distserve_worker.measuring.batches import ROOM
from distserve_worker.measuring.mixes import OUTPUT, Mix
from distserve_worker.measuring.stepping import StepFailed, admitted, timed_step

_SALT: Final = "mixed"  # the same for all, so that beginnings are found again
_PROMPT: Final = "prompt"


@dataclass(frozen=True, slots=True)
class MixedSample:
    """Seconds of one mixed step, and of the decode step just before it, which carried no prompt."""

    seconds: float
    alone: float
    waited: float  # the larger share of either in which its thread did not run


@dataclass(frozen=True, slots=True)
class MixedBench:
    """A colocated engine whose steps take `STEP_TOKENS`."""

    engine: Engine
    vocabulary: int
    temperature: float
    _visits: Iterator[int] = field(default_factory=itertools.count)

    def visit(self, mix: Mix) -> MixedSample:
        """One step of each kind. Raises `StepFailed`."""
        opening = self._tokens("opening", mix.before)
        if opening:
            self._compute(opening)
        beside = [self._work(str(place), self._tokens(place, mix.context), OUTPUT) for place in range(mix.requests)]
        prompt = self._work(_PROMPT, opening + self._tokens(f"chunk {next(self._visits)}", mix.chunk), ROOM)
        with admitted(self.engine, beside):
            timed_step(self.engine, beside)  # their prompts
            timed_step(self.engine, beside)  # brings the batch in order, which later steps profit from
            alone, _ = timed_step(self.engine, beside)
            with admitted(self.engine, [prompt]):
                mixed, happenings = timed_step(self.engine, [*beside, prompt])
        found = next(one.cached_tokens for one in happenings if isinstance(one, Started))
        if found != mix.before:
            raise StepFailed(
                f"{mix.before} tokens of a prompt should have been computed before, the engine found {found}"
            )
        return MixedSample(mixed.seconds, alone.seconds, max(mixed.waited, alone.waited))

    def _compute(self, opening: tuple[int, ...]) -> None:
        """Have the KV of these tokens in the cache; only what is not there yet is computed."""
        work = self._work(_PROMPT, opening + self._tokens("next", 1), ROOM)
        with admitted(self.engine, [work]):
            timed_step(self.engine, [work])

    def _work(self, request_id: str, tokens: Sequence[int], output: int) -> Work:
        sampling = Sampling(self.temperature, seed=0)
        return Work(request_id, tuple(tokens), sampling=sampling, max_tokens=output, prefix_salt=_SALT)

    def _tokens(self, seed: int | str, count: int) -> tuple[int, ...]:
        return tuple(random.Random(seed).choices(range(self.vocabulary), k=count))  # noqa: S311 - no secret
