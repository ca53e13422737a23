"""What fails on a GPU costs the link that it was on and the way that was tried, and nothing else."""

import contextlib
import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from distserve_testing.regions import random_region

from distserve_worker.engine.interface import KvLayout
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.memory.cuda import cuda_errors
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.nccl import pulling, pynccl
from distserve_worker.transfer.nccl.pulling import NcclPulling
from distserve_worker.transfer.nccl.pynccl import RECEIVER, Pair
from distserve_worker.transfer.same_pod.location import Probe, Shape
from distserve_worker.transfer.same_pod.pulling import PodPulling
from distserve_worker.transfer.shm.serving import ShmServing
from distserve_worker.transfer.tcp.connection import has_more, watch_peer
from distserve_worker.transfer.turns import Turns

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
SOURCE = Source("10.0.0.1:9001", b"t" * 32, 1)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (torch.OutOfMemoryError("tried to allocate 64 MiB"), Fault.BUSY),
        (RuntimeError("CUDA error: an illegal memory access"), Fault.CLOSED),
        (TransferError(Fault.STALLED, "too slow"), Fault.STALLED),
    ],
    ids=["memory", "cuda", "own"],
)
def test_what_torch_says_about_a_gpu_is_an_error_of_the_transfer(error: Exception, fault: Fault) -> None:
    with pytest.raises(TransferError) as raised, cuda_errors():
        raise error
    assert raised.value.fault is fault


class Link:
    """One that fails as the test says."""

    made: ClassVar[list["Link"]] = []
    error: ClassVar[BaseException] = RuntimeError()

    def __init__(self, *_: Any) -> None:
        self.closed = False
        self.made.append(self)

    def pull(self, *_: Any) -> None:
        raise self.error

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pull(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], list[bool]]:
    """Fail twice; whether the links that were made for it were closed."""
    monkeypatch.setattr(pulling, "Link", Link)
    monkeypatch.setattr(Link, "made", [])
    region = random_region(LAYOUT, 1)
    side = NcclPulling(region, Turns())

    def fail(error: BaseException) -> list[bool]:
        monkeypatch.setattr(Link, "error", error)
        for _ in range(2):
            with pytest.raises(type(error)):
                side.begin(SOURCE, Selection(region, (0,), region.shard), 1e12).run()
        return [link.closed for link in Link.made]

    return fail


@pytest.mark.parametrize("error", [RuntimeError("CUDA"), TransferError(Fault.CLOSED, "gone"), KeyboardInterrupt()])
def test_after_any_failure_of_a_pull_the_next_one_has_a_link_of_its_own(
    pull: Callable[[BaseException], list[bool]], error: BaseException
) -> None:
    """B4: the rest of one transfer is never taken for another."""
    assert pull(error) == [True, True]


def test_a_refusal_keeps_the_link(pull: Callable[[BaseException], list[bool]]) -> None:
    assert pull(TransferError(Fault.REFUSED, "unknown")) == [False]


class Communicator:
    """One that never meets anybody."""

    def __init__(self) -> None:
        self.ended = False

    def initialize(self, *_: Any) -> None:
        raise RuntimeError("unhandled system error")

    def abort(self) -> None:
        self.ended = True


@pytest.fixture
def communicator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Communicator]:
    made = Communicator()
    identity = SimpleNamespace(from_bytes=bytes)
    core = SimpleNamespace(Communicator=lambda: made, NCCLConfig=dict, UniqueId=identity)
    destroyed: list[int] = []
    runtime = SimpleNamespace(cudaStreamDestroy=destroyed.append)
    monkeypatch.setattr(pynccl, "_core", lambda: core)
    monkeypatch.setattr(pynccl, "_own_stream", lambda _: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(pynccl, "on_gpu", contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(runtime=runtime))
    yield made
    assert destroyed == [7]


def test_a_meeting_that_fails_leaves_neither_a_communicator_nor_a_stream(communicator: Communicator) -> None:
    with pytest.raises(TransferError, match="ncclCommInitRank: unhandled system error"):
        Pair(bytes(128), RECEIVER, torch.device("cuda", 1), lambda: None)
    assert communicator.ended


class Busy:
    """A communicator that has met, whose stream is busy as long as the test says."""

    def __init__(self) -> None:
        self.is_busy = True
        self.at_abort: Callable[[], object] = lambda: None

    def initialize(self, *_: Any) -> None:
        pass

    def receive(self, *_: Any, **__: Any) -> None:
        pass

    recv = send = receive

    def get_async_error(self) -> int:
        return 0

    def abort(self) -> None:
        self.at_abort()

    def query(self) -> bool:
        return not self.is_busy


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    made = Busy()
    core = SimpleNamespace(Communicator=lambda: made, NCCLConfig=dict, UniqueId=SimpleNamespace(from_bytes=bytes))
    stream = SimpleNamespace(cuda_stream=7, query=made.query)
    runtime = SimpleNamespace(cudaStreamDestroy=lambda _: None)
    monkeypatch.setattr(pynccl, "_core", lambda: core)
    monkeypatch.setattr(pynccl, "_own_stream", lambda _: stream)
    monkeypatch.setattr(pynccl, "on_gpu", contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(runtime=runtime))
    return made


@pytest.mark.parametrize("begin", [Pair.send, Pair.receive], ids=["send", "receive"])
def test_memory_is_kept_while_nccl_may_use_it(busy: Busy, begin: Callable[..., None]) -> None:
    """B4: until that is over, or the communicator was aborted; others could have it else."""
    pair = Pair(bytes(128), RECEIVER, torch.device("cuda", 0), lambda: None)

    def begun() -> "weakref.ref[torch.Tensor]":
        memory = torch.zeros(8, dtype=torch.uint8)
        begin(pair, memory, lambda: None)
        return weakref.ref(memory)

    def give_up() -> None:
        raise TransferError(Fault.STALLED, "too slow")

    memory = begun()
    with pytest.raises(TransferError):
        pair.wait(give_up)
    assert memory() is not None
    busy.is_busy = False
    pair.wait(lambda: None)
    assert memory() is None

    memory = begun()
    held: list[bool] = []
    busy.at_abort = lambda: held.append(memory() is not None)
    pair.abort()
    assert held == [True]
    assert memory() is None


def test_memory_that_cannot_be_mapped_is_no_way(deadline: float) -> None:
    """B3: the next one is tried."""

    def mapping(*_: Any) -> Any:
        raise TransferError(Fault.CLOSED, "the GPU failed")

    region = random_region(LAYOUT, 1)
    with contextlib.closing(ShmServing(region, 1)) as serving, contextlib.closing(PodPulling("x", mapping)) as side:
        socket_name = Probe.unpacked(serving.probe).socket
        assert not side.try_(Probe(socket_name, Shape.of(region)).packed(), deadline)


def test_a_peer_whose_machine_is_gone_is_not_waited_for_without_an_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        watch_peer(sock)
        idle, between, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert 0 < idle + between * count <= 60
        listener.accept()[0].close()
        assert not has_more(sock, None)
