"""Kubernetes quantities as numbers."""

from decimal import Decimal, InvalidOperation
from typing import Final

_SUFFIXES: Final[dict[str, int | Decimal]] = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    **{letter: Decimal(1) / 1000**power for power, letter in enumerate("mun", start=1)},
}


def parse_bytes(text: str) -> int:
    """Bytes of a quantity such as `3Gi`, `1500M` or `2e9`, rounded down. Raises ValueError."""
    value = parse_quantity(text)
    if not value.is_finite() or value < 1:
        raise ValueError(f"{text!r} is no quantity of memory such as 3Gi")
    return int(value)


def parse_quantity(text: str) -> Decimal:
    """The number that a quantity such as `250m`, `8` or `3Gi` stands for; NaN for any other text."""
    suffix = next((name for name in _SUFFIXES if text.endswith(name)), "")
    try:
        return Decimal(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, 1)
    except InvalidOperation:
        return Decimal("NaN")
