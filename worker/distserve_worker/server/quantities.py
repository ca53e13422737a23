"""Kubernetes quantities of memory: `512Mi`, `1Gi`, `2e9`."""

from decimal import Decimal, InvalidOperation
from typing import Final

_SUFFIXES: Final = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
}


def parse_bytes(text: str) -> int:
    """Whole bytes of a positive quantity. Raises ValueError."""
    suffix = next((name for name in _SUFFIXES if text.endswith(name)), "")
    try:
        value = Decimal(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, 1)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 1:
        raise ValueError(f"{text!r} is no quantity of memory such as 512Mi or 1Gi")
    return int(value)
