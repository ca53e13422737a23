"""Whom the KV of equal prompt beginnings is shared with, when API keys are kept apart."""

import hashlib
from collections.abc import Iterable


def salt_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """A name for the API key of a request that does not tell the key; requests without one are a group of their own."""
    given = b",".join(value.strip() for name, value in headers if name.lower() == b"authorization")
    scheme, _, key = given.partition(b" ")
    credentials = key.strip() if scheme.lower() == b"bearer" else given
    return hashlib.sha256(credentials).hexdigest()
