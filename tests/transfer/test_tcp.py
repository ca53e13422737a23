"""The tcp transport moves blocks, and both ends end cleanly whatever the other one does."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from distserve_testing.endings import Ending
from distserve_testing.regions import content
from distserve_testing.sockets import received

from distserve_proto.addresses import format_address, parse_address
from distserve_worker.engine.interface import KvLayout
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.tcp.framing import (
    HEADER_BYTES,
    HELLO_BYTES,
    Header,
    Status,
    pack_header,
    pack_hello,
    unpack_header,
)
from distserve_worker.transfer.tcp.pulling import TcpPulling
from distserve_worker.transfer.tcp.serving import TcpServing
from distserve_worker.transfer.tickets import TICKET_BYTES

BLOCK_BYTES = 2 * 2 * 2 * 16 * 16 * 4
MakeMemory = Callable[..., Selection]
Connect = Callable[[Source], socket.socket]
# Blocks of 8 MiB, more than the socket buffers hold, so that a sender really waits for its reader.
BIG = KvLayout(layers=4, kv_heads=8, head_dim=2048, block_tokens=16, dtype="FP32")


class Pull:
    """A pull that runs in its own thread."""

    def __init__(self, source: Source, target: Selection, deadline: float) -> None:
        self.transfer = TcpPulling().begin(source, target, deadline)
        self.errors: list[TransferError] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.transfer.run()
        except TransferError as error:
            self.errors.append(error)

    def fault(self) -> Fault:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.errors[0].fault


def pull(source: Source, target: Selection, deadline: float) -> None:
    TcpPulling().begin(source, target, deadline).run()


@pytest.mark.parametrize("blocks", [1, 63, 64, 65, 200])
def test_the_target_holds_exactly_the_offered_blocks(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float, blocks: int
) -> None:
    offered, target = make_memory(blocks), make_memory(blocks, filling=0)
    pull(serving.offer(offered, deadline, ending), target, deadline)
    assert ending.wait() is None
    assert torch.equal(content(target), content(offered))


def test_several_pulls_run_side_by_side(serving: TcpServing, make_memory: MakeMemory, deadline: float) -> None:
    pairs = [(make_memory(30), make_memory(30, filling=0)) for _ in range(2)]
    pulls = [Pull(serving.offer(offered, deadline, lambda _: None), target, deadline) for offered, target in pairs]
    for running in pulls:
        running.thread.join(20)
        assert not running.errors
    assert all(torch.equal(content(offered), content(target)) for offered, target in pairs)


def test_a_ticket_is_refused_the_second_time(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float
) -> None:
    """B7: whoever replays a ticket reads nothing."""
    source = serving.offer(make_memory(2), deadline, ending)
    pull(source, make_memory(2, filling=0), deadline)
    target = make_memory(2, filling=7)
    with pytest.raises(TransferError) as refusal:
        pull(source, target, deadline)
    assert refusal.value.fault is Fault.REFUSED
    assert torch.equal(content(target), content(make_memory(2, filling=7)))


def test_a_wrong_ticket_is_refused_and_leaves_the_right_one_alone(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float
) -> None:
    offered, target = make_memory(2), make_memory(2, filling=0)
    source = serving.offer(offered, deadline, ending)
    with pytest.raises(TransferError) as refusal:
        pull(replace(source, ticket=b"x" * TICKET_BYTES), target, deadline)
    assert refusal.value.fault is Fault.REFUSED
    pull(source, target, deadline)
    assert torch.equal(content(target), content(offered))


def test_an_expired_ticket_is_refused(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float
) -> None:
    """B6."""
    source = serving.offer(make_memory(1), time.monotonic() - 1, ending)
    with pytest.raises(TransferError) as refusal:
        pull(source, make_memory(1, filling=0), deadline)
    assert refusal.value.fault is Fault.REFUSED
    error = ending.wait()
    assert error is not None
    assert error.fault is Fault.STALLED


def test_a_withdrawn_offer_is_refused(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float
) -> None:
    """B5: a cancelled request is not read afterwards."""
    source = serving.offer(make_memory(1), deadline, ending)
    serving.withdraw(source.ticket)
    assert ending.wait() is not None
    with pytest.raises(TransferError):
        pull(source, make_memory(1, filling=0), deadline)


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_target_of_another_size_is_a_mismatch_and_stays_untouched(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float, blocks: int
) -> None:
    """B4: decode never starts from incomplete KV."""
    source = serving.offer(make_memory(2), deadline, ending)
    target = make_memory(blocks, filling=7)
    with pytest.raises(TransferError) as mismatch:
        pull(source, target, deadline)
    assert mismatch.value.fault is Fault.MISMATCH
    assert torch.equal(content(target), content(make_memory(blocks, filling=7)))
    ending.wait()


def test_a_reader_that_stops_reading_ends_at_the_deadline(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, connect: Connect
) -> None:
    source = serving.offer(make_memory(4, layout=BIG), time.monotonic() + 0.5, ending)
    connect(source).sendall(pack_hello(source.ticket))
    error = ending.wait()
    assert error is not None
    assert error.fault is Fault.STALLED


def test_a_reader_that_goes_away_ends_the_transfer(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float, connect: Connect
) -> None:
    source = serving.offer(make_memory(4, layout=BIG), deadline, ending)
    reader = connect(source)
    reader.sendall(pack_hello(source.ticket))
    assert unpack_header(received(reader, HEADER_BYTES)) == Header(Status.READY, 4, 4 * BIG.block_bytes)
    reader.close()
    error = ending.wait()
    assert error is not None
    assert error.fault is Fault.CLOSED


def test_withdrawing_cuts_a_running_transfer(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float, connect: Connect
) -> None:
    """B5: cancelled in the middle of a pull."""
    source = serving.offer(make_memory(4, layout=BIG), deadline, ending)
    reader = connect(source)
    reader.sendall(pack_hello(source.ticket))
    received(reader, HEADER_BYTES)
    serving.withdraw(source.ticket)
    error = ending.wait()
    assert error is not None
    assert error.fault is Fault.ABORTED


def test_strangers_do_not_reach_memory_and_do_not_block_readers(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float, connect: Connect
) -> None:
    offered, target = make_memory(2), make_memory(2, filling=0)
    source = serving.offer(offered, deadline, ending)
    connect(source)  # says nothing at all
    stranger = connect(source)
    stranger.sendall(b"GET / HTTP/1.1\r\n".ljust(HELLO_BYTES))
    assert received(stranger, 1) == b""
    pull(source, target, deadline)
    assert torch.equal(content(target), content(offered))


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"", Fault.CLOSED),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Fault.MISMATCH),
        (pack_header(Header(Status.READY, 2, 2 * BLOCK_BYTES)), Fault.CLOSED),
        (pack_header(Header(Status.READY, 2, 2 * BLOCK_BYTES)) + b"x" * 16383, Fault.CLOSED),
        (pack_header(Header(Status.READY, 2, 2 * BLOCK_BYTES)) + b"x" * 16384, Fault.CLOSED),
        (pack_header(Header(Status.READY, 2, 2 * BLOCK_BYTES)) + b"x" * 16392, Fault.MISMATCH),
    ],
)
def test_a_sender_that_breaks_off_or_babbles_is_a_typed_error(
    make_memory: MakeMemory, deadline: float, answer: bytes, fault: Fault
) -> None:
    """B4: only a transfer with its trailer counts."""
    with listen("127.0.0.1", 0) as listener:
        source = Source(format_address("127.0.0.1", listener.getsockname()[1]), b"t" * TICKET_BYTES, 2 * BLOCK_BYTES)
        running = Pull(source, make_memory(2, filling=0), deadline)
        sender, _ = listener.accept()
        with sender:
            received(sender, HELLO_BYTES)
            sender.sendall(answer)
        assert running.fault() is fault


def test_a_sender_that_says_nothing_ends_at_the_deadline(make_memory: MakeMemory) -> None:
    with listen("127.0.0.1", 0) as listener:
        source = Source(format_address("127.0.0.1", listener.getsockname()[1]), b"t" * TICKET_BYTES, 2 * BLOCK_BYTES)
        assert Pull(source, make_memory(1), time.monotonic() + 0.5).fault() is Fault.STALLED


def test_aborting_a_pull_ends_it(make_memory: MakeMemory, deadline: float) -> None:
    """B5: the reader's own cancellation."""
    with listen("127.0.0.1", 0) as listener:
        source = Source(format_address("127.0.0.1", listener.getsockname()[1]), b"t" * TICKET_BYTES, 2 * BLOCK_BYTES)
        running = Pull(source, make_memory(1), deadline)
        sender, _ = listener.accept()
        with sender:
            received(sender, HELLO_BYTES)
            running.transfer.abort()
            assert running.fault() is Fault.ABORTED


def test_a_connection_that_nobody_accepts_can_be_aborted(make_memory: MakeMemory, deadline: float) -> None:
    """B5: the kernel answers no more connections than fit its queue, and the rest wait."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        source = Source(format_address("127.0.0.1", listener.getsockname()[1]), b"t" * TICKET_BYTES, 2 * BLOCK_BYTES)
        running = Pull(source, make_memory(1), deadline)
        running.transfer.abort()
        assert running.fault() is Fault.ABORTED


def test_the_next_address_of_a_name_is_tried(make_memory: MakeMemory, ending: Ending, deadline: float) -> None:
    """B16: a name with IPv6 and IPv4 addresses, of which one listens."""
    serving = TcpServing(listen("127.0.0.1", 0), "localhost", 1)
    try:
        offered, target = make_memory(1), make_memory(1, filling=0)
        pull(serving.offer(offered, deadline, ending), target, deadline)
        assert torch.equal(content(target), content(offered))
    finally:
        serving.close()


def test_nobody_listening_is_unreachable(make_memory: MakeMemory, deadline: float) -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    for endpoint in (format_address("127.0.0.1", port), "no port"):
        source = Source(endpoint, b"t" * TICKET_BYTES, 2 * BLOCK_BYTES)
        assert Pull(source, make_memory(1), deadline).fault() is Fault.UNREACHABLE


def test_closing_ends_offers_and_refuses_connections(
    serving: TcpServing, make_memory: MakeMemory, ending: Ending, deadline: float
) -> None:
    source = serving.offer(make_memory(1), deadline, ending)
    serving.close()
    assert ending.wait() is not None
    with pytest.raises(TransferError) as error:
        pull(source, make_memory(1), deadline)
    assert error.value.fault is Fault.UNREACHABLE


def test_blocks_travel_over_ipv6(make_memory: MakeMemory, ending: Ending, deadline: float) -> None:
    """B16."""
    serving = TcpServing(listen("::1", 0), "::1", 1)
    try:
        assert parse_address(serving.endpoint).host == "::1"
        offered, target = make_memory(3), make_memory(3, filling=0)
        pull(serving.offer(offered, deadline, ending), target, deadline)
        assert torch.equal(content(target), content(offered))
    finally:
        serving.close()
