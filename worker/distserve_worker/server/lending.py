"""What readers ask of a prefill worker: checks their calls, and offers them pieces of the KV that is parked there."""

from collections.abc import Sequence
from typing import Final

import grpc

from distserve_proto import kv_pb2
from distserve_worker.server.identity import Identity
from distserve_worker.server.kept import Kept
from distserve_worker.server.kv_wire import blocks_of, layout_of, shard_of, shards_of, source_message
from distserve_worker.server.parking import Parking
from distserve_worker.server.piece_checks import pieces_objection
from distserve_worker.server.reader import Wanted
from distserve_worker.transfer.agent import Agent, Share
from distserve_worker.transfer.interface import Fault, TransferError

MAX_READERS: Final = 16  # pulls that a prefill worker serves side by side


class KvRefused(Exception):  # noqa: N818 - an answer to one reader
    """A call that cannot be served."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lending:
    """Used on the event loop only."""

    def __init__(self, parking: Parking, identity: Identity, agents: Sequence[Agent]) -> None:
        """`agents`: one a rank, in the order of the identity's shards."""
        self._parking = parking
        self._identity = identity
        self._agents = agents

    def connect(self, incarnation: str) -> kv_pb2.ConnectResponse:
        """How each rank can be reached. Raises `KvRefused`."""
        self._check_incarnation(incarnation)
        ranks = [
            [kv_pb2.Transport(name=way.transport, probe=way.probe) for way in agent.ways] for agent in self._agents
        ]
        return kv_pb2.ConnectResponse(ranks=[kv_pb2.RankTransports(transports=ways) for ways in ranks])

    async def pull(self, request: kv_pb2.PullRequest) -> kv_pb2.PullResponse:
        """Offer pieces of a parked KV to a reader. Raises `KvRefused`."""
        kept = self._checked(request.handle)
        objection = pieces_objection(request.pieces, self._identity.shards, self._agents)
        if objection is not None:
            raise KvRefused(grpc.StatusCode.FAILED_PRECONDITION, objection)
        if self._parking.readers >= MAX_READERS:
            text = f"{MAX_READERS} pulls are offered or running already"
            raise KvRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        wanted = [self._wanted(kept, piece) for piece in request.pieces]
        try:
            sources = await kept.offer(wanted, sum(self._nbytes(one.share) for one in wanted))
        except TransferError as error:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.fault is Fault.BUSY else grpc.StatusCode.INTERNAL
            raise KvRefused(code, str(error)) from error
        return kv_pb2.PullResponse(sources=[source_message(source) for source in sources])

    def renew(self, incarnation: str, key: str) -> float:
        """Begin a lease anew; its seconds. Raises `KvRefused`."""
        self._check_incarnation(incarnation)
        seconds = self._parking.renew(key)
        if seconds is None:
            raise _gone(key)
        return seconds

    def release(self, incarnation: str, key: str) -> None:
        """The reader has what it needs. Unknown handles are ignored."""
        if incarnation == self._identity.incarnation:
            self._parking.release(key)

    def _wanted(self, kept: Kept, piece: kv_pb2.Piece) -> Wanted:
        share = Share(tuple(block.index for block in kept.parked.blocks), shard_of(piece.part))
        return Wanted(self._agents[piece.rank], piece.transport, share)

    def _nbytes(self, share: Share) -> int:
        return len(share.blocks) * share.part.layers * 2 * share.part.heads * self._identity.layout.head_bytes

    def _checked(self, handle: kv_pb2.KvHandle) -> Kept:
        self._check_incarnation(handle.incarnation)
        _check_equal("compatibility_key", handle.compatibility_key, self._identity.compatibility_key)
        _check_equal("layout", layout_of(handle.layout), self._identity.layout)
        _check_equal("shards", shards_of(handle), self._identity.shards)
        kept = self._parking.held(handle.request_id)
        if kept is None:
            raise _gone(handle.request_id)
        if blocks_of(handle) != kept.parked.blocks:
            # What is parked is pinned: blocks with other generations were freed, and hold somebody else's KV by now.
            text = f"handle.blocks: are not those of {handle.request_id}"
            raise KvRefused(grpc.StatusCode.FAILED_PRECONDITION, text)
        _check_equal("tokens", handle.tokens, kept.parked.tokens)
        return kept

    def _check_incarnation(self, incarnation: str) -> None:
        _check_equal("incarnation", incarnation, self._identity.incarnation)


def _check_equal(name: str, told: object, ours: object) -> None:
    if told != ours:
        raise KvRefused(grpc.StatusCode.FAILED_PRECONDITION, f"handle.{name}: is {told}, here it is {ours}")


def _gone(key: str) -> KvRefused:
    return KvRefused(grpc.StatusCode.NOT_FOUND, f"handle.request_id: {key} is not parked here, or its lease expired")
