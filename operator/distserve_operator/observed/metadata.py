"""Parts of `metadata` that every view needs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def parse_time(text: str) -> datetime:
    """An RFC 3339 time of the API, with its zone."""
    return datetime.fromisoformat(text)


def controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner that manages the object, if any."""
    return next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)


def is_controlled_by(metadata: Mapping[str, Any], uid: str) -> bool:
    """Whether the object with `uid` is its managing owner."""
    owner = controller(metadata)
    return owner is not None and owner.get("uid") == uid
