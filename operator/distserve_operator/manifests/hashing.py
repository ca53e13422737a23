"""Stable hashes of plain data."""

import json
from collections.abc import Mapping
from typing import Any

from distserve_operator.names import short_hash


def hash_of(data: Mapping[str, Any]) -> str:
    """Hash of a JSON-like mapping; keys without a value do not count, so that a new field changes no hash by itself."""
    return short_hash(json.dumps({k: v for k, v in data.items() if v is not None}, sort_keys=True))
