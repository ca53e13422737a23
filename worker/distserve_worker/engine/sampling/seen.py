"""Which tokens a request has seen, kept up to date token by token for the penalties."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

_FIRST_ROOM: Final = 64


class SeenTokens:
    """The distinct tokens of a request, in order of appearance, and how often each is in its output."""

    __slots__ = ("_counts", "_places", "_tokens")

    def __init__(self, prompt: Iterable[int] = (), output: Iterable[int] = ()) -> None:
        distinct = list(dict.fromkeys(prompt))
        self._places = {token: place for place, token in enumerate(distinct)}
        self._tokens = np.array([*distinct, *[0] * _FIRST_ROOM], dtype=np.int64)
        self._counts = np.zeros(len(self._tokens), dtype=np.float32)
        for token in output:
            self.add(token)

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Ids [distinct]; a view that is good until the next `add`."""
        return self._tokens[: len(self._places)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        """Occurrences in the output [distinct]: 0 for a token of the prompt alone; a view as well."""
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        """One more token of the output."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._tokens):
            self._tokens = np.resize(self._tokens, 2 * place)
            self._counts = np.concatenate([self._counts, np.zeros(place, dtype=np.float32)])
        self._tokens[place] = token
        self._counts[place] += 1
