"""Whether the pieces that a reader asks for can be had: an ordered list of small checks."""

from collections.abc import Callable, Sequence
from typing import Final

from distserve_proto import kv_pb2
from distserve_worker.engine.interface import KvShard
from distserve_worker.server.kv_wire import shard_of
from distserve_worker.transfer.agent import Agent
from distserve_worker.transfer.memory.selection import contains

MOST_PIECES: Final = 256  # each of 32 ranks takes something from 8 others

_Pieces = Sequence[kv_pb2.Piece]
_Check = Callable[[_Pieces, Sequence[KvShard], Sequence[Agent]], str | None]


def pieces_objection(pieces: _Pieces, shards: Sequence[KvShard], agents: Sequence[Agent]) -> str | None:
    """The first thing that is wrong, naming field and value; None when all is right. One shard and agent a rank."""
    return next((text for check in _CHECKS if (text := check(pieces, shards, agents)) is not None), None)


def _some(pieces: _Pieces, _: Sequence[KvShard], __: Sequence[Agent]) -> str | None:
    if not 1 <= len(pieces) <= MOST_PIECES:
        return f"pieces: are {len(pieces)}, from 1 to {MOST_PIECES} are taken"
    return None


def _of_known_ranks(pieces: _Pieces, shards: Sequence[KvShard], _: Sequence[Agent]) -> str | None:
    for place, piece in enumerate(pieces):
        if piece.rank >= len(shards):
            return f"pieces[{place}].rank: is {piece.rank}, there are {len(shards)} ranks here"
    return None


def _inside(pieces: _Pieces, shards: Sequence[KvShard], _: Sequence[Agent]) -> str | None:
    for place, piece in enumerate(pieces):
        if not contains(shards[piece.rank], shard_of(piece.part)):
            return f"pieces[{place}].part: is {shard_of(piece.part)}, rank {piece.rank} holds {shards[piece.rank]}"
    return None


def _once(pieces: _Pieces, _: Sequence[KvShard], __: Sequence[Agent]) -> str | None:
    of_reader: dict[int, list[tuple[int, KvShard]]] = {}
    for place, piece in enumerate(pieces):
        part, taken = shard_of(piece.part), of_reader.setdefault(piece.reader_rank, [])
        for earlier, other in taken:
            if _overlap(part, other):
                return f"pieces[{place}].part: rank {piece.reader_rank} takes some of it with pieces[{earlier}] already"
        taken.append((place, part))
    return None


def _served(pieces: _Pieces, _: Sequence[KvShard], agents: Sequence[Agent]) -> str | None:
    for place, piece in enumerate(pieces):
        known = [way.transport for way in agents[piece.rank].ways]
        if piece.transport not in known:
            return f"pieces[{place}].transport: is {piece.transport!r}, rank {piece.rank} has {', '.join(known)}"
    return None


def _overlap(one: KvShard, other: KvShard) -> bool:
    layers = one.first_layer < other.end_layer and other.first_layer < one.end_layer
    return layers and one.first_head < other.end_head and other.first_head < one.end_head


_CHECKS: Final[tuple[_Check, ...]] = (_some, _of_known_ranks, _inside, _once, _served)
