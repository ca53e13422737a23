"""Chooses the pair of instances for a request: pure, from what is known of every worker.

The prefill instance with the shortest queue in tokens, then the decode instance with the least load, both with the same
compatibility key. Among equals the one whose last turn is longest ago, so equal workers get equal work.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from distserve_proto.contract import Role

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that takes new work."""

    instance: str
    role: Role
    compatibility_key: str
    max_tokens: int  # prompt and output of one request together
    queued_tokens: int  # that a new prefill would wait for
    requests: int  # waiting and running
    used_blocks: float  # ratio of 0 to 1
    last_turn: int  # grows with every choice


@dataclass(frozen=True, slots=True)
class Pair:
    """Names of the two instances that serve one request."""

    prefill: str
    decode: str


def choose(candidates: Collection[Candidate], avoid: Collection[str] = ()) -> Pair | None:
    """The best pair without the instances in `avoid`; None when there is none."""
    usable = _paired(candidate for candidate in candidates if candidate.instance not in avoid)
    prefill = min(_of(usable, Role.PREFILL), key=_prefill_load, default=None)
    if prefill is None:
        return None
    partners = (c for c in _of(usable, Role.DECODE) if c.compatibility_key == prefill.compatibility_key)
    return Pair(prefill.instance, min(partners, key=_decode_load).instance)


def usable_pairs(candidates: Collection[Candidate]) -> int:
    """Pairs that could serve a request now."""
    decode = [candidate.compatibility_key for candidate in _of(candidates, Role.DECODE)]
    return sum(decode.count(prefill.compatibility_key) for prefill in _of(candidates, Role.PREFILL))


def longest_request(candidates: Collection[Candidate]) -> int | None:
    """The most tokens that every usable instance can hold of one request; None without a pair."""
    return min((candidate.max_tokens for candidate in _paired(candidates)), default=None)


def shortage(candidates: Collection[Candidate]) -> str:
    """Why there is no pair, for the client and the log."""
    prefill, decode = _of(candidates, Role.PREFILL), _of(candidates, Role.DECODE)
    if prefill and decode:
        return "no prefill and decode instance hold the same weights"
    return f"{len(prefill)} prefill and {len(decode)} decode instances are ready, at least 1 of each is needed"


def _of(candidates: Iterable[Candidate], role: Role) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.role is role]


def _paired(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those whose key occurs on both sides."""
    known = list(candidates)
    prefill, decode = ({c.compatibility_key for c in _of(known, role)} for role in (Role.PREFILL, Role.DECODE))
    return [candidate for candidate in known if candidate.compatibility_key in prefill & decode]


def _prefill_load(candidate: Candidate) -> Key:
    return candidate.queued_tokens, candidate.requests, candidate.last_turn


def _decode_load(candidate: Candidate) -> Key:
    return candidate.requests, candidate.used_blocks, candidate.last_turn
