"""Steps as measured on a device."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """Kernel seconds of a prefill batch of so many tokens; `squares` is the sum of its squared lengths."""

    tokens: int
    squares: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """Kernel seconds of a decode step; `context` is the sum of its contexts in tokens."""

    context: int
    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MixedPoint:
    """Seconds of a decode step that computes `chunk` tokens of a prompt too, after `before` ones of it.

    `alone` are the seconds of the same step without the prompt.
    """

    before: int
    chunk: int
    alone: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Points:
    """What one law was fitted to, and its profile's overlap of chunks."""

    prefill: tuple[PrefillPoint, ...] = ()
    decode: tuple[DecodePoint, ...] = ()
    mixed: tuple[MixedPoint, ...] = ()
