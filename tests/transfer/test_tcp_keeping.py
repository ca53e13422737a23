"""Connections of the tcp transport serve one pull after another, and no pull suffers from the one before it."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from distserve_testing.endings import Ending
from distserve_testing.regions import content
from distserve_testing.sockets import received

from distserve_proto.addresses import format_address, parse_address
from distserve_worker.transfer.interface import Fault, Source, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.tcp.framing import (
    HEADER_BYTES,
    HELLO_BYTES,
    TRAILER,
    Header,
    Status,
    pack_header,
    pack_hello,
)
from distserve_worker.transfer.tcp.pulling import TcpPulling
from distserve_worker.transfer.tcp.serving import TcpServing
from distserve_worker.transfer.tickets import TICKET_BYTES

BLOCK_BYTES = 2 * 2 * 2 * 16 * 16 * 4
HEADER = pack_header(Header(Status.READY, 1, BLOCK_BYTES))
SECONDS = 20.0
MakeMemory = Callable[..., Selection]
Connect = Callable[[Source], socket.socket]


def whole(filling: int) -> bytes:
    """A transfer of one block, of a filling byte."""
    return HEADER + bytes([filling]) * BLOCK_BYTES + TRAILER


class Sender:
    """A serving side that says what a test tells it, and the pulling side that it serves."""

    def __init__(self, listener: socket.socket, target: Selection) -> None:
        self.listener = listener
        listener.settimeout(SECONDS)
        self.source = Source(format_address("127.0.0.1", listener.getsockname()[1]), b"t" * TICKET_BYTES, target.nbytes)
        self.target = target
        self.pulling = TcpPulling()
        self.transfer = self.pulling.begin(self.source, target, time.monotonic() + SECONDS)
        self._thread = threading.Thread()
        self._errors: list[TransferError] = []

    def begin(self) -> None:
        """A pull, in its own thread."""
        self.transfer = self.pulling.begin(self.source, self.target, time.monotonic() + SECONDS)
        self._errors.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def ended(self) -> Fault | None:
        """How it ended."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return self._errors[0].fault if self._errors else None

    def accept(self) -> socket.socket:
        sock, _ = self.listener.accept()
        sock.settimeout(SECONDS)
        return sock

    def accepts_no_more(self) -> bool:
        self.listener.settimeout(0)
        try:
            self.listener.accept()
        except BlockingIOError:
            return True
        finally:
            self.listener.settimeout(SECONDS)
        return False

    def serve(self, sock: socket.socket, filling: int) -> None:
        """One pull over this connection, to its good end."""
        self.begin()
        hear(sock)
        sock.sendall(whole(filling))
        assert self.ended() is None
        assert self.is_filled(filling)

    def is_filled(self, filling: int) -> bool:
        """Whether every byte of the target is this one."""
        return bool((content(self.target) == filling).all())

    def _run(self) -> None:
        try:
            self.transfer.run()
        except TransferError as error:
            self._errors.append(error)


def hear(sock: socket.socket) -> None:
    """A hello."""
    assert len(received(sock, HELLO_BYTES)) == HELLO_BYTES


@pytest.fixture
def sender(make_memory: MakeMemory) -> Iterator[Sender]:
    with listen("127.0.0.1", 0) as listener:
        sending = Sender(listener, make_memory(1))
        yield sending
        sending.pulling.close()


@pytest.fixture
def kept(sender: Sender) -> Iterator[socket.socket]:
    """A connection over which one pull has gone."""
    sender.begin()
    with sender.accept() as sock:
        hear(sock)
        sock.sendall(whole(1))
        assert sender.ended() is None
        yield sock


def test_the_next_pull_goes_over_the_connection_of_the_last(sender: Sender, kept: socket.socket) -> None:
    sender.serve(kept, 2)
    sender.serve(kept, 3)
    assert sender.accepts_no_more()


def test_aborting_a_pull_that_is_over_does_not_cut_the_next_one(sender: Sender, kept: socket.socket) -> None:
    """B5."""
    over = sender.transfer
    sender.begin()
    hear(kept)
    over.abort()
    kept.sendall(whole(2))
    assert sender.ended() is None


def test_a_connection_that_was_closed_meanwhile_is_replaced(sender: Sender, kept: socket.socket) -> None:
    """B8: such as by a worker that was restarted."""
    kept.close()
    sender.begin()
    with sender.accept() as fresh:
        hear(fresh)
        fresh.sendall(whole(2))
        assert sender.ended() is None


@pytest.mark.parametrize("again", [True, False], ids=["once", "not twice"])
def test_a_connection_that_breaks_before_the_first_answer_is_replaced(
    sender: Sender, kept: socket.socket, again: bool
) -> None:
    """B3: the fresh one has to work."""
    sender.begin()
    hear(kept)
    kept.close()
    with sender.accept() as fresh:
        hear(fresh)
        fresh.sendall(whole(2) if again else b"")
    assert sender.ended() is (None if again else Fault.CLOSED)
    assert sender.accepts_no_more()


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (pack_header(Header(Status.REFUSED)), Fault.REFUSED),
        (pack_header(Header(Status.READY, 2, 2 * BLOCK_BYTES)), Fault.MISMATCH),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Fault.MISMATCH),
        (HEADER + bytes(BLOCK_BYTES) + b"x" * len(TRAILER), Fault.MISMATCH),
        (HEADER + bytes(100), Fault.ABORTED),
    ],
    ids=["refused", "another size", "babble", "no trailer", "aborted"],
)
def test_after_a_failed_pull_its_connection_serves_no_other(
    sender: Sender, kept: socket.socket, answer: bytes, fault: Fault
) -> None:
    """B4, B5: the rest of one transfer is never taken for another."""
    sender.begin()
    hear(kept)
    kept.sendall(answer)
    if fault is Fault.ABORTED:
        sender.transfer.abort()
    assert sender.ended() is fault
    with contextlib.suppress(ConnectionResetError):
        assert kept.recv(1) == b""
    sender.begin()
    with sender.accept() as fresh:
        hear(fresh)
        fresh.sendall(whole(2))
        assert sender.ended() is None


def test_what_a_peer_says_between_two_pulls_is_in_neither(sender: Sender, kept: socket.socket) -> None:
    """B4."""
    kept.sendall(whole(9))
    sender.begin()
    with sender.accept() as fresh:
        hear(fresh)
        fresh.sendall(whole(2))
        assert sender.ended() is None
    assert sender.is_filled(2)


def test_the_serving_side_closes_what_was_not_used_for_long(
    monkeypatch: pytest.MonkeyPatch,
    serving: TcpServing,
    make_memory: MakeMemory,
    ending: Ending,
    deadline: float,
    connect: Connect,
) -> None:
    monkeypatch.setattr("distserve_worker.transfer.tcp.serving.SERVER_KEEPS_SECONDS", 0.05)
    source = serving.offer(make_memory(1), deadline, ending)
    reader = connect(source)
    take(reader, source)
    assert reader.recv(1) == b""


def take(reader: socket.socket, source: Source) -> None:
    reader.sendall(pack_hello(source.ticket))
    size = HEADER_BYTES + source.nbytes + len(TRAILER)
    assert len(received(reader, size)) == size


def test_the_serving_side_keeps_a_bounded_number(
    serving: TcpServing, make_memory: MakeMemory, deadline: float, connect: Connect
) -> None:
    """Two here, whichever come first; a reader that finds its connection closed is served over another one."""
    offered = make_memory(1)
    readers = []
    for _ in range(3):
        ending = Ending()
        source = serving.offer(offered, deadline, ending)
        readers.append(connect(source))
        take(readers[-1], source)
        assert ending.wait() is None  # until then it counts as running
    (closed,), _, _ = select.select(readers, [], [], SECONDS)
    assert closed.recv(1) == b""
    first, second = (reader for reader in readers if reader is not closed)
    for reader in (first, connect(source), second):
        ending = Ending()
        source = serving.offer(offered, deadline, ending)
        take(reader, source)
        assert ending.wait() is None


def test_a_worker_at_the_address_of_another_is_met_anew(make_memory: MakeMemory, deadline: float) -> None:
    """B8."""
    pulling = TcpPulling()
    port = 0
    for _ in range(2):
        serving = TcpServing(listen("127.0.0.1", port), "127.0.0.1", 1)
        port = parse_address(serving.endpoint).port
        for _ in range(2):
            offered, target, ending = make_memory(2), make_memory(2, filling=0), Ending()
            pulling.begin(serving.offer(offered, deadline, ending), target, deadline).run()
            assert ending.wait() is None
            assert torch.equal(content(target), content(offered))
        serving.close()
    pulling.close()
