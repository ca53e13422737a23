"""Whether a KV handle fits a decode leg: an ordered list of small checks."""

from collections.abc import Callable
from typing import Final

from distserve_proto import worker_pb2
from distserve_proto.addresses import parse_address
from distserve_worker.server.identity import Identity
from distserve_worker.server.kv_wire import layout_of, shards_of
from distserve_worker.transfer.resharding import LayoutsUnmatched, pieces

_MOST_RANKS: Final = 1024

_Check = Callable[[worker_pb2.Submit, Identity], str | None]


def handle_objection(submit: worker_pb2.Submit, identity: Identity) -> str | None:
    """The first thing that is wrong, naming field and value; None when all is right."""
    return next((text for check in _CHECKS if (text := check(submit, identity)) is not None), None)


def _present(submit: worker_pb2.Submit, _: Identity) -> str | None:
    return None if submit.HasField("kv") else "kv: a decode leg needs the handle that prefill returned"


def _first_token(submit: worker_pb2.Submit, _: Identity) -> str | None:
    return None if submit.output else "output: is empty, a decode leg needs the token that prefill sampled"


def _named(submit: worker_pb2.Submit, _: Identity) -> str | None:
    return None if submit.kv.request_id and submit.kv.incarnation else "kv: names no request or no incarnation"


def _same_weights(submit: worker_pb2.Submit, identity: Identity) -> str | None:
    told, ours = submit.kv.compatibility_key, identity.compatibility_key
    return None if told == ours else f"kv.compatibility_key: is {told!r}, this worker's is {ours!r}"


def _same_layout(submit: worker_pb2.Submit, identity: Identity) -> str | None:
    told, ours = layout_of(submit.kv.layout), identity.layout
    return None if told == ours else f"kv.layout: is {told}, this worker's is {ours}"


def _all_heads(submit: worker_pb2.Submit, identity: Identity) -> str | None:
    shards = shards_of(submit.kv)
    if len(shards) > _MOST_RANKS:
        return f"kv.shards: are {len(shards)}, at most {_MOST_RANKS} are taken"
    try:
        pieces(shards, identity.shards)
    except LayoutsUnmatched as error:
        return f"kv.shards: {error}"
    return None


def _all_tokens(submit: worker_pb2.Submit, _: Identity) -> str | None:
    told, expected = submit.kv.tokens, len(submit.prompt) + len(submit.output) - 1
    return None if told == expected else f"kv.tokens: is {told}, prompt and output without the last are {expected}"


def _all_blocks(submit: worker_pb2.Submit, identity: Identity) -> str | None:
    told, expected = len(submit.kv.blocks), -(-submit.kv.tokens // identity.layout.block_tokens)
    return None if told == expected else f"kv.blocks: are {told}, {submit.kv.tokens} tokens fill {expected}"


def _reachable(submit: worker_pb2.Submit, _: Identity) -> str | None:
    try:
        parse_address(submit.kv.address)
    except ValueError as error:
        return f"kv.address: {error}"
    return None


_CHECKS: Final[tuple[_Check, ...]] = (
    _present,
    _first_token,
    _named,
    _same_weights,
    _same_layout,
    _all_heads,
    _all_tokens,
    _all_blocks,
    _reachable,
)
