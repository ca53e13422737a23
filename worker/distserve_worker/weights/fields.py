"""Typed access to the fields of a JSON object, whose mistakes are named; null counts as absent."""

import math
from collections.abc import Mapping
from typing import Any

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.limits import MOST, allowed


class Fields:
    """The fields of `where`. Every getter raises `ModelInvalid` for another type, and without default when absent."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self.where = where

    def is_null(self, name: str) -> bool:
        """Whether null is written, where that means something else than nothing."""
        return name in self._values and self._values[name] is None

    def has(self, name: str) -> bool:
        """Whether it is written, and not as null."""
        return self._values.get(name) is not None

    def count(self, name: str, what: str, default: int | None = None, least: int = 1) -> int:
        """A whole number, such as a model can have of `what` (of `limits.MOST`)."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST[what]:
            raise self._wrong(name, value, allowed(what, least))
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """A number greater than 0."""
        value = self._value(name, default)
        try:
            if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < float(value) < math.inf:
                return float(value)
        except OverflowError:
            pass
        raise self._wrong(name, value, "a number greater than 0")

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a string")
        return value

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings; None when absent."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, value, "a list of strings")
        return tuple(value)

    def tokens(self, name: str) -> frozenset[int]:
        """A token id or a list of them; none when absent."""
        value = self._values.get(name)
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            raise self._wrong(name, value, "a token id or a list of them")
        return frozenset(items)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object; empty when absent."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return value

    def _value(self, name: str, default: float | str | None) -> Any:  # noqa: ANN401 - JSON can hold anything
        value = self._values.get(name)
        value = default if value is None else value
        if value is None:
            raise ModelInvalid(f"{self.where}: the field {name} is missing")
        return value

    def _wrong(self, name: str, value: object, wanted: str) -> ModelInvalid:
        return ModelInvalid(f"{self.where}: the field {name} is {value!r:.80}, it must be {wanted}")
