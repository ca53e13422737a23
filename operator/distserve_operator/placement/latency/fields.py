"""Reads the fields of a document and gathers what is wrong with them, each with its path."""

import difflib
import math
from collections.abc import Sequence
from typing import Final

from distserve_operator.placement.latency.problem import Problem

MOST: Final = 10**9  # of a count


class Fields:
    """One mapping of a document. A field that is wrong becomes a problem, and some value takes its place."""

    def __init__(self, content: object, path: str, problems: list[Problem]) -> None:
        self._problems = problems
        self._path = path
        self._content: dict[str, object] = content if isinstance(content, dict) else {}
        self._known: set[str] = set()
        self._readable = isinstance(content, dict)
        if not self._readable:
            self.complain("", content, "is no mapping", "write fields and their values")

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; without default it has to be there."""
        value = self._take(key, default)
        if value is None:
            return 0.0
        if isinstance(value, str):  # YAML takes 1e-6 for text
            value = _parsed(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.complain(key, value, "is no number", "write a number")
        elif not math.isfinite(value):
            self.complain(key, value, "is no finite number", "measure again, or write a number")
        else:
            return float(value)
        return 0.0

    def amount(self, key: str, default: float | None = None, most: float = math.inf) -> float:
        """A number from 0 to `most`."""
        value = self.number(key, default)
        if value < 0 or value > most:
            self.complain(
                key, value, "is out of range", f"write 0 to {most:g}" if most < math.inf else "write 0 or more"
            )
        return value

    def seconds(self, key: str, default: float | None = None) -> float:
        """The field `<key>Milliseconds`, which may be negative."""
        return self.number(f"{key}Milliseconds", default) / 1000

    def duration(self, key: str, default: float | None = None) -> float:
        """The field `<key>Milliseconds`, 0 or more."""
        return self.amount(f"{key}Milliseconds", default) / 1000

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1 and at most `MOST`."""
        value = self._take(key, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST):
            self.complain(key, value, f"is no whole number from 1 to {MOST}", "write one")
            return 1
        return 1 if value is None else value

    def optional_count(self, key: str) -> int | None:
        """A whole number of at least 1; None: the field is not there."""
        return self.count(key) if self.has(key) else None

    def text(self, key: str, choice: Sequence[str] = ()) -> str:
        """A text that is not empty, out of `choice` if there is one."""
        value = self._take(key, None)
        if value is None:
            return ""
        if not isinstance(value, str) or not value:
            self.complain(key, value, "is no text", "write one")
            return ""
        if choice and value not in choice:
            self.complain(key, value, "is not known", f"write {' or '.join(choice)}")
        return value

    def optional_text(self, key: str) -> str | None:
        """A text; None: the field is not there."""
        return self.text(key) if self.has(key) else None

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            self.complain(key, value, "is neither true nor false", "write one of them")
            return default
        return value

    def part(self, key: str) -> "Fields":
        """A mapping inside this one; without it, one without fields."""
        return Fields(self._take(key, {}), self._at(key), self._problems)

    def each(self, key: str, needed: bool = True) -> list["Fields"]:
        """The mappings of a list, which has at least one when it is `needed`."""
        value = self._take(key, None if needed else [])
        if value is None:
            return []
        if not isinstance(value, list) or (needed and not value):
            self.complain(key, value, "is no list with entries", "write one")
            return []
        return [Fields(entry, f"{self._at(key)}[{place}]", self._problems) for place, entry in enumerate(value)]

    def has(self, key: str) -> bool:
        """Whether the field is there."""
        return self._content.get(key) is not None

    def skip(self, key: str) -> None:
        """A field that is written for people and means nothing on reading."""
        self._known.add(key)

    def finish(self) -> None:
        """Complain about fields that nobody has asked for."""
        for key in self._content:
            if key not in self._known:
                near = difflib.get_close_matches(str(key), self._known, n=1)
                fix = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(self._known))}"
                self.complain(str(key), self._content[key], "is of a field that is not known", fix)

    def complain(self, key: str, value: object, reason: str, fix: str) -> None:
        """Note a problem with a field, or with the whole mapping when `key` is empty."""
        self._problems.append(Problem(self._at(key), _shown(value), reason, fix))

    def _take(self, key: str, default: object) -> object:
        self._known.add(key)
        value = self._content.get(key)
        if value is None and default is None and self._readable:
            self.complain(key, "nothing", "stands here", "write the field")
        return default if value is None else value

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path and key else self._path or key


def _parsed(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
