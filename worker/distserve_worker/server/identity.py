"""Who a worker is: the incarnation of its boot and the key that says which workers can be paired."""

import hashlib
import uuid
from dataclasses import dataclass
from typing import Final

from distserve_proto.contract import WIRE_VERSION
from distserve_worker.engine.interface import Description, KvLayout, KvShard

KV_FORMAT: Final = 1  # changes with the meaning of the bytes in a block


@dataclass(frozen=True, slots=True)
class Identity:
    """What a handle says about the worker that made it."""

    incarnation: str
    compatibility_key: str
    layout: KvLayout  # of the whole model
    shards: tuple[KvShard, ...]  # of each rank, in order
    address: str  # of the gRPC services, as other pods reach it


def new_incarnation() -> str:
    """Different at every boot."""
    return uuid.uuid4().hex


def compatibility_key(description: Description) -> str:
    """Equal exactly where KV can be exchanged: same weights, dtype, KV format and wire version, whatever the layout."""
    weights = hashlib.sha256(description.weights_digest.encode()).hexdigest()[:16]
    return f"{weights}-{description.dtype.lower()}-kv{KV_FORMAT}-wire{WIRE_VERSION}"
