"""Chooses the instances for a request: pure, from what is known of every worker.

A request begins on the prefill instance with the shortest queue in tokens, as long as some decode instance has the same
compatibility key, and goes on, when its KV is there, on the decode instance with the least load. A colocated instance
serves it to its end. One that is leaving gets only what has begun, and only when no other is left: that would be lost
otherwise. Among equals the one whose last turn is longest ago, so equal workers get equal work. A worker is
known by its incarnation: after a restart it is another one.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from distserve_proto.contract import Role

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker with an attached stream."""

    instance: str
    incarnation: str
    role: Role
    compatibility_key: str
    max_tokens: int  # prompt and output of one request together
    queued_tokens: int  # that a new prefill would wait for
    requests: int  # waiting and running
    parked: int  # requests whose KV waits for a decode instance
    places: int | None  # for requests; None: not said
    used_blocks: float  # ratio of 0 to 1
    leaving: bool  # takes no new requests
    last_turn: int  # grows with every choice


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs of an instance."""

    tokens: int  # prompt and output together, as far as they are known
    avoid: frozenset[str] = frozenset()  # incarnations that have failed it
    begun: bool = False  # has tokens already


def choose_first(candidates: Collection[Candidate], need: Need) -> Candidate | None:
    """Where a request begins: a prefill instance that has a partner, or a colocated one; None when there is none."""
    usable = _usable(_able(candidates, need))
    return min((worker for worker in usable if worker.role is not Role.DECODE), key=_queue, default=None)


def choose_decode(candidates: Collection[Candidate], key: str, need: Need) -> Candidate | None:
    """The decode instance with the least load for KV of `key`, which has begun by then."""
    able = (worker for worker in candidates if _fits(worker, need) and worker.compatibility_key == key)
    return min(_of(able, Role.DECODE), key=_decode_load, default=None)


def free_places(candidates: Collection[Candidate], key: str) -> int | None:
    """Requests that the decode instances of `key` still take; None when one of them does not say."""
    places = [
        None if worker.places is None else max(0, worker.places - worker.requests)
        for worker in _of(_staying(candidates), Role.DECODE)
        if worker.compatibility_key == key
    ]
    known = [count for count in places if count is not None]
    return sum(known) if len(known) == len(places) else None


def usable_pairs(candidates: Collection[Candidate]) -> int:
    """Pairs that could serve a request now; a colocated instance is one by itself."""
    staying = _staying(candidates)
    decode = [worker.compatibility_key for worker in _of(staying, Role.DECODE)]
    pairs = sum(decode.count(worker.compatibility_key) for worker in _of(staying, Role.PREFILL))
    return pairs + len(_of(staying, Role.COLOCATED))


def longest_request(candidates: Collection[Candidate]) -> int | None:
    """The most tokens that every usable instance can hold of one request; None without any."""
    return min((worker.max_tokens for worker in _usable(_staying(candidates))), default=None)


def shortage(candidates: Collection[Candidate]) -> str:
    """Why there is no pair, for the client and the log."""
    prefill, decode = (_of(_staying(candidates), role) for role in (Role.PREFILL, Role.DECODE))
    if prefill and decode:
        return "no prefill and decode instance hold the same weights"
    return f"{len(prefill)} prefill and {len(decode)} decode instances are ready, at least 1 of each is needed"


def _of(candidates: Iterable[Candidate], role: Role) -> list[Candidate]:
    return [worker for worker in candidates if worker.role is role]


def _staying(candidates: Iterable[Candidate]) -> list[Candidate]:
    return [worker for worker in candidates if not worker.leaving]


def _fits(worker: Candidate, need: Need) -> bool:
    return worker.incarnation not in need.avoid and worker.max_tokens >= need.tokens


def _able(candidates: Iterable[Candidate], need: Need) -> list[Candidate]:
    return [worker for worker in candidates if _fits(worker, need) and (need.begun or not worker.leaving)]


def _usable(candidates: Collection[Candidate]) -> list[Candidate]:
    """Colocated ones, and those whose key occurs on both sides."""
    prefill, decode = ({w.compatibility_key for w in _of(candidates, role)} for role in (Role.PREFILL, Role.DECODE))
    paired = prefill & decode
    return [worker for worker in candidates if worker.role is Role.COLOCATED or worker.compatibility_key in paired]


def _queue(worker: Candidate) -> Key:
    return worker.leaving, worker.queued_tokens, worker.requests, worker.last_turn


def _decode_load(worker: Candidate) -> Key:
    return worker.leaving, worker.requests, worker.used_blocks, worker.last_turn
