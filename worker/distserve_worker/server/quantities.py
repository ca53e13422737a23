"""Kubernetes quantities of memory: `512Mi`, `1Gi`, `2e9`."""

import re
from decimal import Decimal
from typing import Final

_FACTORS: Final = {
    "": 1,
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)([A-Za-z]*)", re.ASCII)


def parse_bytes(text: str) -> int:
    """Whole bytes of a positive quantity. Raises ValueError."""
    match = _QUANTITY.fullmatch(text)
    if match is not None and match[2] in _FACTORS:
        value = int(Decimal(match[1]) * _FACTORS[match[2]])
        if value > 0:
            return value
    raise ValueError(f"{text!r} is no quantity of memory such as 512Mi or 1Gi")
