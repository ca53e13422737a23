"""Whether the engine thread makes progress: what takes longer than the slowest honest step could is hung."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# A probe must never end a legal long prefill: these are far slower than any engine that somebody would serve with.
_SECONDS_PER_TOKEN: Final = 0.5
_SECONDS_BESIDES: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Turn:
    began: float
    tokens: int

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return _SECONDS_BESIDES + self.tokens * _SECONDS_PER_TOKEN


class Pulse:
    """Written by the engine thread, read by the event loop. Commands wait for a turn's end, so it bounds them too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn: _Turn | None = None

    def begin(self, tokens: int = 0) -> None:
        """The thread takes commands or begins a step of at most `tokens` tokens."""
        self._turn = _Turn(self._clock(), tokens)

    def rest(self) -> None:
        """The thread waits for commands, which may never come."""
        self._turn = None

    @property
    def complaint(self) -> str | None:
        """Why the engine counts as hung; None while it does not."""
        turn = self._turn
        if turn is None:
            return None
        seconds = self._clock() - turn.began
        if seconds <= turn.seconds:
            return None
        return f"the engine is hung: {turn.tokens} tokens take {seconds:.0f} s, {turn.seconds:.0f} s are generous"
