"""The most that a model can have of anything: far beyond all that exist, and little enough to count with."""

from collections.abc import Mapping
from typing import Final

# by the fields of `ModelConfig`; of each at least one
MOST: Final[Mapping[str, int]] = {
    "layers": 1 << 12,
    "hidden": 1 << 20,
    "heads": 1 << 16,
    "kv_heads": 1 << 16,
    "head_dim": 1 << 16,
    "ffn": 1 << 24,
    "vocab": 1 << 24,
    "max_positions": 2**31 - 1,
}


def allowed(what: str, least: int = 1) -> str:
    """In words, for whoever has written another number."""
    return f"a whole number from {least} to {MOST[what]}"
