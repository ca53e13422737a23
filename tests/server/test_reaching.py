"""How a decode worker finds the transports to a prefill worker: a real gRPC server and listener, NCCL as scripted."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from distserve_testing.peers import ScriptedPeer, scripted_peer
from distserve_testing.regions import random_region

from distserve_proto import kv_pb2, worker_pb2
from distserve_worker.engine.interface import KvLayout, Region
from distserve_worker.server import reaching
from distserve_worker.server.kv_failures import KvUnreachable
from distserve_worker.server.peers import Peers
from distserve_worker.server.reaching import Reaching
from distserve_worker.transfer.agent import LocalAgent
from distserve_worker.transfer.interface import Fault, Transfer, TransferError
from distserve_worker.transfer.tcp.pulling import TcpPulling

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
SECONDS = 20.0
LATE = TransferError(Fault.STALLED, "too slow for the deadline")


class Nccl:
    """A pulling side whose tries end one after another as the test says, and like the last one from then on.

    While `gate` is closed, they take their time.
    """

    name = "nccl"

    def __init__(self) -> None:
        self.ends: list[TransferError | bool] = [LATE]
        self.tries = 0
        self.gate = threading.Event()
        self.gate.set()

    def try_(self, _probe: bytes, _deadline: float) -> bool:
        self.tries += 1
        assert self.gate.wait(SECONDS)
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, TransferError):
            raise end
        return end

    def begin(self, *_: object) -> Transfer:
        raise AssertionError("nothing is pulled here")

    def close(self) -> None:
        pass


@pytest.fixture
def region() -> Region:
    return random_region(LAYOUT, 1)


@pytest.fixture
def nccl() -> Nccl:
    return Nccl()


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedPeer]:
    layout = kv_pb2.KvLayout(
        layers=LAYOUT.layers, kv_heads=LAYOUT.kv_heads, head_dim=LAYOUT.head_dim, block_tokens=LAYOUT.block_tokens
    )
    async with scripted_peer(worker_pb2.Description(layout=layout)) as peer:
        peer.ways = ["nccl", "tcp"]
        yield peer


@pytest.fixture
async def ours(region: Region, nccl: Nccl) -> AsyncIterator[Reaching]:
    with contextlib.closing(LocalAgent(region, [], [nccl, TcpPulling()])) as agent:
        peers = Peers()
        found = Reaching(peers, [agent], (region.shard,))
        yield found
        nccl.gate.set()
        await found.close()
        await peers.close()


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is due again at once."""
    monkeypatch.setattr(reaching, "_AGAIN_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def levels(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, reaching.log.name):
        yield


async def transport(ours: Reaching, peer: ScriptedPeer) -> str:
    (hop,) = await ours.hops(peer.handle(1))
    return hop.transport


async def tried_again(peer: ScriptedPeer) -> None:
    """The try that the last request began is over."""
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == f"reach {peer.address} better")
    async with asyncio.timeout(SECONDS):
        await task


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_better_way_that_came_too_late_is_warned_of_and_not_tried_with_every_request(
    ours: Reaching, peer: ScriptedPeer, nccl: Nccl, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert await transport(ours, peer) == "tcp"
    assert nccl.tries == 1
    (warning,) = warnings(caplog)
    assert f"KV from {peer.address} comes over tcp, for better ways failed: nccl (stalled: too slow" in warning


@pytest.mark.usefixtures("due")
async def test_a_better_way_is_taken_when_it_works_and_no_request_waits_for_it(
    ours: Reaching, peer: ScriptedPeer, nccl: Nccl, caplog: pytest.LogCaptureFixture
) -> None:
    nccl.ends = [LATE, LATE, True]
    for _ in range(2):
        assert await transport(ours, peer) == "tcp"
    await tried_again(peer)
    nccl.gate.clear()
    for _ in range(3):  # the first of them begins a try, which hangs
        assert await transport(ours, peer) == "tcp"
    nccl.gate.set()
    await tried_again(peer)
    assert await transport(ours, peer) == "nccl"
    assert nccl.tries == 3
    assert len(warnings(caplog)) == 1
    assert f"rank 0 reaches rank 0 of {peer.address} over nccl now" in caplog.messages
    assert peer.connects == 1


@pytest.mark.usefixtures("due")
async def test_a_way_that_turns_out_to_lead_elsewhere_is_not_tried_any_more(
    ours: Reaching, peer: ScriptedPeer, nccl: Nccl
) -> None:
    nccl.ends = [LATE, False]
    for _ in range(2):
        assert await transport(ours, peer) == "tcp"
    await tried_again(peer)
    for _ in range(3):
        assert await transport(ours, peer) == "tcp"
    assert nccl.tries == 2


async def test_a_worker_that_is_out_of_reach_is_told_with_what_failed(
    ours: Reaching, peer: ScriptedPeer, nccl: Nccl
) -> None:
    """B3."""
    peer.ways = ["nccl"]
    with pytest.raises(KvUnreachable, match=r"no transport of: nccl; nccl \(stalled: too slow for the deadline\)"):
        await transport(ours, peer)
    nccl.ends = [True]
    assert await transport(ours, peer) == "nccl"
