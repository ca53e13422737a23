"""A rank tries the ways to another one after the other, and one that hangs costs neither the next one nor a pull."""

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from distserve_testing.agent_process import Memory, rank_process
from distserve_testing.endings import Ending
from distserve_testing.regions import content

from distserve_proto.addresses import format_address
from distserve_worker.engine.interface import KvLayout, KvShard
from distserve_worker.transfer.agent import Agent, Choice, LocalAgent, Passed, Way
from distserve_worker.transfer.interface import Fault, Transfer, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.opening import open_pulling_agent
from distserve_worker.transfer.same_pod.location import Probe, Shape
from distserve_worker.transfer.shm.pulling import shm_pulling
from distserve_worker.transfer.shm.serving import ShmServing
from distserve_worker.transfer.tcp.pulling import TcpPulling

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
MEMORY = Memory(LAYOUT, 2, KvShard(0, 2, 0, 2), 1)
SECONDS = 20.0


@pytest.fixture
def hanging() -> Iterator[Way]:
    """A process of this pod that lets others connect and then does nothing."""
    name = f"distserve-test-{secrets.token_hex(8)}"
    with hanging_at(name):
        yield Way("shm", Probe(name, Shape.of(MEMORY.region())).packed())


@contextlib.contextmanager
def hanging_at(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(8)
        listener.settimeout(SECONDS)
        yield listener


@pytest.fixture(params=["here", "in another process"])
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    if request.param == "here":
        with contextlib.closing(open_pulling_agent(MEMORY.region())) as local:
            yield local
    else:
        with rank_process(MEMORY) as rank:
            yield rank.agent


def test_a_way_that_hangs_does_not_eat_the_time_of_the_next(agent: Agent, hanging: Way) -> None:
    """B3: each has its own bound."""
    with listen("127.0.0.1", 0) as listener:
        tcp = Way("tcp", format_address("127.0.0.1", listener.getsockname()[1]).encode())
        late = Passed(hanging, "no answer within 0.5 s")
        assert agent.choose([hanging, hanging, tcp], 0.5) == Choice("tcp", (late, late))
        assert agent.choose([hanging], 0.1).transport is None


class Failing:
    """A pulling side whose tries end as the test says; see `Pulling`."""

    name = "nccl"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def try_(self, _probe: bytes, _deadline: float) -> bool:
        raise self._error

    def begin(self, *_: object) -> Transfer:
        raise AssertionError("it was never chosen")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "reason", "is_logged"),
    [
        (AttributeError("'int' object has no attribute 'name'"), "AttributeError(", True),
        (ImportError("libcudart.so.13"), "ImportError('libcudart.so.13')", True),
        (TransferError(Fault.BUSY, "the GPU has no memory left"), "busy: the GPU has no memory left", False),
    ],
    ids=["attribute", "import", "transfer"],
)
def test_a_way_that_fails_in_whatever_manner_leaves_the_others(
    error: Exception, reason: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """B3: it is reported, with a traceback where nobody has foreseen it."""
    agent = LocalAgent(MEMORY.region(), [], [Failing(error), TcpPulling()])
    way = Way("nccl", b"")
    with contextlib.closing(agent), listen("127.0.0.1", 0) as listener:
        tcp = Way("tcp", format_address("127.0.0.1", listener.getsockname()[1]).encode())
        choice = agent.choose([way, tcp], SECONDS)
    assert choice.transport == "tcp"
    (passed,) = choice.passed
    assert passed.way == way
    assert passed.reason.startswith(reason)
    assert [record.exc_info is not None for record in caplog.records] == [True] * is_logged


def test_a_way_to_another_pod_is_not_reported_as_one_that_failed(agent: Agent) -> None:
    elsewhere = Way("shm", Probe(f"distserve-test-{secrets.token_hex(8)}", Shape.of(MEMORY.region())).packed())
    assert agent.choose([elsewhere], SECONDS) == Choice(None)


def test_pulls_from_others_go_on_while_a_way_hangs() -> None:
    served, region = MEMORY.region(), MEMORY.region()
    region.memory.zero_()
    offered, target = Selection(served, (0, 1), served.shard), Selection(region, (1, 0), region.shard)
    name, found = f"distserve-test-{secrets.token_hex(8)}", list[bool]()
    with (
        contextlib.closing(ShmServing(served, 4)) as serving,
        contextlib.closing(shm_pulling()) as pulling,
        hanging_at(name) as listener,
    ):
        assert pulling.try_(serving.probe, time.monotonic() + SECONDS)
        probe, end = Probe(name, Shape.of(region)).packed(), time.monotonic() + 10 * SECONDS
        thread = threading.Thread(target=lambda: found.append(pulling.try_(probe, end)))
        thread.start()
        with listener.accept()[0]:
            for _ in range(3):
                source = serving.offer(offered, time.monotonic() + SECONDS, Ending())
                pulling.begin(source, target, time.monotonic() + SECONDS).run()
                serving.withdraw(source.ticket)
            assert not found
        thread.join(SECONDS)
        assert found == [False]
        assert torch.equal(content(target), content(offered))
