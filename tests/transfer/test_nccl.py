"""The nccl transport between two ranks: everything of it but the GPUs and NCCL, which are played."""

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from distserve_testing.endings import Ending
from distserve_testing.played_gpu import played_gpu
from distserve_testing.played_nccl import PlayedNccl, played_nccl
from distserve_testing.regions import content, random_region

from distserve_proto.addresses import format_address
from distserve_worker.engine.interface import MOST_STAGED, KvLayout
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.memory.device import DeviceBlocks
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.nccl import link, serving
from distserve_worker.transfer.nccl.framing import HELLO
from distserve_worker.transfer.nccl.pulling import NcclPulling, NcclTransfer
from distserve_worker.transfer.nccl.pynccl import ID_BYTES
from distserve_worker.transfer.nccl.serving import NcclServing
from distserve_worker.transfer.turns import Turns

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
BLOCKS = 6
SECONDS = 20.0


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedNccl]:
    with played_gpu(monkeypatch), played_nccl(monkeypatch) as played:
        yield played


def everything() -> Selection:
    region = random_region(LAYOUT, BLOCKS)
    return Selection(region, tuple(range(BLOCKS)), region.shard)


class Ends:
    """A rank that serves and one that reads."""

    def __init__(self) -> None:
        self.offered, self.wanted = everything(), everything()
        self.sending, self.pulling = Turns(), Turns()
        listener = listen("127.0.0.1", 0)
        self.serving = NcclServing(self.offered.region, listener, "127.0.0.1", 32, self.sending)
        self.reader = NcclPulling(self.wanted.region, self.pulling)

    def transfer(self, seconds: float = SECONDS) -> NcclTransfer:
        deadline = time.monotonic() + seconds
        return self.reader.begin(self.serving.offer(self.offered, deadline, Ending()), self.wanted, deadline)

    def is_complete(self) -> bool:
        return torch.equal(content(self.wanted), content(self.offered))

    def close(self) -> None:
        self.reader.close()
        self.serving.close()
        for thread in threading.enumerate():  # else they would go on on GPUs that are not played any more
            if thread.name == "kv-nccl":
                thread.join(SECONDS)


@pytest.fixture
def ends(nccl: PlayedNccl) -> Iterator[Ends]:  # noqa: ARG001 - both ends use it
    with contextlib.closing(Ends()) as made:
        yield made


def tried(reader: NcclPulling, endpoint: str, seconds: float = SECONDS) -> Fault:
    with pytest.raises(TransferError) as raised:
        reader.try_(endpoint.encode(), time.monotonic() + seconds)
    return raised.value.fault


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A process that does with each connection as told, and closes it; where it listens."""
    with listen("127.0.0.1", 0) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as sock:
                        answer(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield format_address("127.0.0.1", listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(SECONDS)


def greet_only(sock: socket.socket) -> None:
    """And go when the identity has come."""
    assert sock.recv(len(HELLO), socket.MSG_WAITALL) == HELLO
    sock.sendall(HELLO)
    assert len(sock.recv(ID_BYTES, socket.MSG_WAITALL)) == ID_BYTES


def test_one_meeting_is_enough_for_many_transfers(ends: Ends, nccl: PlayedNccl) -> None:
    assert ends.reader.try_(ends.serving.probe, time.monotonic() + SECONDS)
    for _ in range(3):
        ends.wanted.region.memory.zero_()
        ends.transfer().run()
        assert ends.is_complete()
    assert (nccl.made, nccl.met) == (1, 2)


def test_a_transfer_holds_one_chunk_at_a_time_on_either_side(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for the next one is only taken when that of the last is free again: it is counted so."""
    for module in (link, serving):
        monkeypatch.setattr(module, "CHUNK_BYTES", 2 * LAYOUT.block_bytes)
    held: list[bool] = []

    def watched(make: Callable[[DeviceBlocks, slice], torch.Tensor]) -> Callable[[DeviceBlocks, slice], torch.Tensor]:
        before: list[weakref.ref[torch.Tensor]] = []

        def gathered(blocks: DeviceBlocks, run: slice) -> torch.Tensor:
            held.extend(one() is not None for one in before)
            made = make(blocks, run)
            before.append(weakref.ref(made))
            return made

        return gathered

    for name in ("gather", "room"):
        monkeypatch.setattr(DeviceBlocks, name, watched(getattr(DeviceBlocks, name)))
    ends.transfer().run()
    assert ends.is_complete()
    chunks = 1 + BLOCKS // 2  # the first block is one too
    assert held == [False] * (2 * sum(range(chunks)))


def test_no_identity_is_made_for_a_peer_that_does_not_answer(ends: Ends, nccl: PlayedNccl) -> None:
    """Each that nobody meets under would cost a thread and a descriptor for good."""
    with answering(lambda _: None) as endpoint:
        assert tried(ends.reader, endpoint) is Fault.CLOSED
    assert tried(ends.reader, endpoint) is Fault.UNREACHABLE
    with answering(lambda sock: sock.sendall(bytes(len(HELLO)))) as endpoint:
        assert tried(ends.reader, endpoint) is Fault.MISMATCH
    assert nccl.made == 0


def test_nccl_is_loaded_before_anybody_is_greeted(ends: Ends, nccl: PlayedNccl) -> None:
    """It takes seconds the first time, for which a peer that has been greeted would not wait."""
    nccl.missing = True
    greeted: list[bool] = []
    with answering(lambda _: greeted.append(True)) as endpoint, pytest.raises(TransferError, match="cannot be loaded"):
        ends.reader.try_(endpoint.encode(), time.monotonic() + SECONDS)
    assert not greeted


def test_a_peer_that_goes_during_a_meeting_is_not_waited_for(ends: Ends) -> None:
    """B3: neither until the deadline nor for ever."""
    with answering(greet_only) as endpoint:
        assert tried(ends.reader, endpoint, seconds=3 * SECONDS) is Fault.CLOSED


def test_a_peer_that_does_not_come_to_the_meeting_is_given_up_at_the_deadline(ends: Ends) -> None:
    over = threading.Event()

    def stay(sock: socket.socket) -> None:
        greet_only(sock)
        over.wait(SECONDS)

    with answering(stay) as endpoint:
        assert tried(ends.reader, endpoint, seconds=0.2) is Fault.STALLED
        over.set()


def test_after_a_meeting_that_failed_there_is_a_pause(ends: Ends, nccl: PlayedNccl) -> None:
    with answering(greet_only) as endpoint:
        assert tried(ends.reader, endpoint) is Fault.CLOSED
        assert tried(ends.reader, endpoint) is Fault.UNREACHABLE
    assert nccl.made == 1


def test_other_bytes_than_were_sent_are_no_way(ends: Ends, nccl: PlayedNccl) -> None:
    nccl.spoilt = True
    assert tried(ends.reader, ends.serving.probe.decode()) is Fault.MISMATCH
    assert nccl.aborted >= 1


@pytest.mark.parametrize("side", ["sending", "pulling"])
def test_a_transfer_waits_for_its_turn_until_its_deadline(ends: Ends, nccl: PlayedNccl, side: str) -> None:
    """So a rank stages a bounded number of chunks, whatever the number of its readers."""
    assert ends.reader.try_(ends.serving.probe, time.monotonic() + SECONDS)
    turns: Turns = getattr(ends, side)
    with ExitStack() as stack:
        for _ in range(MOST_STAGED):
            stack.enter_context(turns.one(lambda: None))
        with pytest.raises(TransferError) as raised:
            ends.transfer(seconds=0.3).run()
        assert raised.value.fault is Fault.STALLED
    ends.transfer().run()
    assert ends.is_complete()
    if side == "pulling":
        assert nccl.made == 1, "who was not asked for anything is not left"


def test_a_transfer_whose_rank_has_no_turn_for_it_can_be_aborted(ends: Ends, nccl: PlayedNccl) -> None:
    """B5."""
    assert ends.reader.try_(ends.serving.probe, time.monotonic() + SECONDS)
    nccl.receiving.get(timeout=SECONDS)  # the first block
    faults: list[Any] = []

    def run(transfer: NcclTransfer) -> None:
        try:
            transfer.run()
        except TransferError as error:
            faults.append(error.fault)

    with ExitStack() as stack:
        for _ in range(MOST_STAGED):
            stack.enter_context(ends.sending.one(lambda: None))
        transfer = ends.transfer(seconds=3 * SECONDS)
        thread = threading.Thread(target=run, args=(transfer,))
        thread.start()
        nccl.receiving.get(timeout=SECONDS)
        transfer.abort()
        thread.join(SECONDS)
    assert faults == [Fault.ABORTED]


def test_what_is_left_of_ranks_that_have_gone_is_let_go_of_when_another_is_met(ends: Ends, nccl: PlayedNccl) -> None:
    """Else each prefill worker that was ever met would keep memory of the GPU."""
    others = Ends(), Ends()
    ends.transfer().run()
    aborted = []
    for other in others:
        assert ends.reader.try_(other.serving.probe, time.monotonic() + SECONDS)
        aborted.append(nccl.aborted_by_readers)
        ends.serving.close()
    for other in others:
        other.reader.close()
        other.serving.close()
    assert aborted == [0, 1]


def test_a_ticket_of_nobody_is_refused_and_costs_no_meeting(ends: Ends, nccl: PlayedNccl) -> None:
    ends.transfer().run()
    source = Source(ends.serving.probe.decode(), bytes(32), ends.wanted.nbytes)
    with pytest.raises(TransferError, match="does not know the ticket"):
        ends.reader.begin(source, ends.wanted, time.monotonic() + SECONDS).run()
    ends.transfer().run()
    assert nccl.made == 1
