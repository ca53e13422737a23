"""Finds stop strings in text that arrives in pieces."""

from collections.abc import Sequence


class _Pattern:
    """One stop string as a Knuth-Morris-Pratt automaton; `matched` characters of it end the text so far."""

    __slots__ = ("_fallback", "_text", "matched")

    def __init__(self, text: str) -> None:
        assert text, "an empty stop string would stop everything"
        self._text = text
        self._fallback = _borders(text)
        self.matched = 0

    @property
    def complete(self) -> bool:
        """Whether the text so far ends with the whole string."""
        return self.matched == len(self._text)

    def pass_over(self) -> None:
        """Let a whole string stand as text: what can still match is one that overlaps with it."""
        self.matched = self._fallback[self.matched - 1]

    def advance(self, character: str) -> None:
        """Take one character of the text."""
        while self.matched and self._text[self.matched] != character:
            self.matched = self._fallback[self.matched - 1]
        if self._text[self.matched] == character:
            self.matched += 1


class StopStrings:
    """Cuts a text before the stop string that is complete first; of several, before the longest.

    It never holds back more than the longest end of the text that is a proper prefix of a stop string, and never emits
    a character of a stop string that matched. The cost is linear in the text.
    """

    __slots__ = ("_held", "_patterns", "stopped")

    def __init__(self, stops: Sequence[str]) -> None:
        self._patterns = [_Pattern(stop) for stop in dict.fromkeys(stops)]
        self._held = ""
        self.stopped = False

    @property
    def holding(self) -> bool:
        """Whether some of the text is held back."""
        return bool(self._held)

    def feed(self, text: str, *, stopping: bool = True) -> str:
        """The part of the text so far that is certain to be before any stop string and was not returned yet.

        Stop strings that are complete within `text` count only when it is `stopping`.
        """
        if self.stopped or not self._patterns:
            return "" if self.stopped else text
        text = self._held + text
        for place in range(len(self._held), len(text)):
            for pattern in self._patterns:
                pattern.advance(text[place])
            complete = [pattern for pattern in self._patterns if pattern.complete]
            if complete and stopping:
                return self._stop(text[: place + 1])
            for pattern in complete:
                pattern.pass_over()
        keep = max(pattern.matched for pattern in self._patterns)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _stop(self, text: str) -> str:
        self.stopped = True
        self._held = ""
        longest = max(pattern.matched for pattern in self._patterns if pattern.complete)
        return text[: len(text) - longest]


def _borders(text: str) -> list[int]:
    """For each prefix of `text`: the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(text)
    for place in range(1, len(text)):
        border = borders[place - 1]
        while border and text[border] != text[place]:
            border = borders[border - 1]
        borders[place] = border + (text[border] == text[place])
    return borders
