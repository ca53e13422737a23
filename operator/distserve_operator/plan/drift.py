"""Whether an object still says everything that we said in it; what others added is theirs (B31)."""

from collections.abc import Mapping, Sequence
from typing import Any


def says(live: Any, ours: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether every field of `ours` stands in `live`; lists are compared item by item."""
    if isinstance(ours, Mapping):
        return isinstance(live, Mapping) and all(key in live and says(live[key], ours[key]) for key in ours)
    if isinstance(ours, Sequence) and not isinstance(ours, str):
        return (
            isinstance(live, Sequence)
            and len(live) == len(ours)
            and all(says(there, here) for there, here in zip(live, ours, strict=True))
        )
    return bool(live == ours)
