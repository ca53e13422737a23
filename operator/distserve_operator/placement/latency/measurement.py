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
class Points:
    """What one law was fitted to."""

    prefill: tuple[PrefillPoint, ...] = ()
    decode: tuple[DecodePoint, ...] = ()
