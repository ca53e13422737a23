"""Everything that the choice of a request's next token depends on, besides its logits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from distserve_worker.engine.interface import Sampling
from distserve_worker.engine.sampling.seen import SeenTokens

# Below it the most likely token has all of the probability in FP32, and dividing by it may overflow.
_GREEDY_BELOW: Final = 1e-5


@dataclass(slots=True, eq=False)
class Choice:
    """Lives as long as its request and grows by `take`, so a step rebuilds nothing of it.

    `position`: of the token to be chosen, in the output. `seen`: None when no penalty asks for it.
    """

    sampling: Sampling
    position: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    seen: SeenTokens | None = None
    bias_tokens: npt.NDArray[np.int64] = field(init=False)
    biases: npt.NDArray[np.float32] = field(init=False)
    _stops: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        bias = self.sampling.logit_bias
        self.bias_tokens = np.array([token for token, _ in bias], dtype=np.int64)
        self.biases = np.array([value for _, value in bias], dtype=np.float32)
        self._stops = np.array(sorted(self.stop_token_ids), dtype=np.int64)

    @classmethod
    def of(
        cls, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], stop_token_ids: frozenset[int]
    ) -> "Choice":
        """The next choice of a request that has `output` already, wherever that was made."""
        seen = None
        if penalizes(sampling):
            seen = SeenTokens(prompt if sampling.repetition_penalty != 1.0 else (), output)
        return cls(sampling, len(output), stop_token_ids, seen)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken without a draw."""
        return self.sampling.temperature < _GREEDY_BELOW or self.sampling.top_k == 1

    @property
    def withheld(self) -> npt.NDArray[np.int64]:
        """Tokens that cannot be chosen now: those that would stop the output before `min_tokens`."""
        return self._stops if self.position < self.sampling.min_tokens else self._stops[:0]

    @property
    def adjusts(self) -> bool:
        """Whether the choice is made from other logits than the model's own."""
        return self.seen is not None or len(self.biases) > 0 or len(self.withheld) > 0

    def take(self, token: int) -> None:
        """This was chosen; the next one is due."""
        self.position += 1
        if self.seen is not None:
            self.seen.add(token)


def penalizes(sampling: Sampling) -> bool:
    """Whether tokens that were seen have other chances than fresh ones."""
    return (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1.0, 0.0, 0.0)
