"""Kubernetes quantities of memory as whole bytes."""

from decimal import Decimal, InvalidOperation
from typing import Final

_SUFFIXES: Final = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    "m": Decimal("0.001"),
}


def parse_bytes(text: str) -> int:
    """Bytes of a quantity such as `3Gi`, `1500M` or `2e9`, rounded down. Raises ValueError."""
    suffix = next((name for name in _SUFFIXES if text.endswith(name)), "")
    try:
        value = Decimal(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, 1)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 1:
        raise ValueError(f"{text!r} is no quantity of memory such as 3Gi")
    return int(value)
