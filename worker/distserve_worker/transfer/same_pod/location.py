"""Where an offer is, as bytes of a `Source`: its slot and its blocks; and the shape of a region for who maps it."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from distserve_worker.engine.interface import KvShard, Region
from distserve_worker.transfer.memory.selection import Selection, contains

_FIXED_BYTES: Final = 5 * 4


@dataclass(frozen=True, slots=True)
class Location:
    """An offer as its reader finds it."""

    slot: int
    part: KvShard
    blocks: tuple[int, ...]

    def packed(self) -> bytes:
        """As bytes."""
        part = self.part
        numbers = (self.slot, part.first_layer, part.layers, part.first_head, part.heads, *self.blocks)
        return struct.pack(f">{len(numbers)}I", *numbers)

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """From bytes. Raises ValueError."""
        if len(data) < _FIXED_BYTES or len(data) % 4:
            raise ValueError(f"a location of {len(data)} bytes")
        slot, first_layer, layers, first_head, heads, *blocks = struct.unpack(f">{len(data) // 4}I", data)
        return cls(slot, KvShard(first_layer, layers, first_head, heads), tuple(blocks))


@dataclass(frozen=True, slots=True)
class Shape:
    """Geometry of a region that a reader maps."""

    blocks: int
    shard: KvShard
    head_bytes: int

    @classmethod
    def of(cls, region: Region) -> Self:
        """Of one of our own."""
        return cls(region.blocks, region.shard, region.layout.head_bytes)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self.blocks * self.shard.layers * 2 * self.shard.heads * self.head_bytes

    def objection(self, location: Location, target: Selection) -> str | None:
        """Why what is offered there is not what `target` is to hold."""
        if len(location.blocks) != len(target.blocks) or max(location.blocks) >= self.blocks:
            return f"{len(target.blocks)} blocks are needed, {location.blocks} of {self.blocks} are offered"
        if location.part != target.part or not contains(self.shard, target.part):
            return f"{target.part} is needed, {location.part} of {self.shard} is offered"
        if self.head_bytes != target.region.layout.head_bytes:
            return f"heads of {target.region.layout.head_bytes} bytes are needed, {self.head_bytes} are offered"
        return None


@dataclass(frozen=True, slots=True)
class Probe:
    """What a reader has to know of a serving side."""

    socket: str
    shape: Shape
    more: Mapping[str, str | int] = field(default_factory=dict)  # the transport's own

    def packed(self) -> bytes:
        """As bytes."""
        shape, shard = self.shape, self.shape.shard
        numbers = [shape.blocks, shape.head_bytes, shard.first_layer, shard.layers, shard.first_head, shard.heads]
        return json.dumps({"socket": self.socket, "shape": numbers, "more": self.more}).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """From bytes. Raises ValueError."""
        found = json.loads(data)
        try:
            blocks, head_bytes, *shard = (int(number) for number in found["shape"])
            return cls(str(found["socket"]), Shape(blocks, KvShard(*shard), head_bytes), dict(found["more"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a probe: {error}") from error
