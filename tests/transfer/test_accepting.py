"""Serving sides go on taking connections, whatever keeps them from taking one."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO

import pytest
from distserve_testing.sockets import received

from distserve_worker.transfer.accepting import Accepting
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.same_pod.hosting import GREETING
from distserve_worker.transfer.tcp.framing import HEADER_BYTES, Header, Status, pack_header, pack_hello
from distserve_worker.transfer.tickets import TICKET_BYTES

SECONDS = 20.0
_SERVE = """
import logging, os, resource, sys
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.same_pod.hosting import Hosting
from distserve_worker.transfer.tcp.serving import TcpServing

def tell(text):
    os.write(1, f"{text}\\n".encode())  # at once: two threads tell

class Telling(logging.Handler):
    def emit(self, record):
        tell("failing")

logging.getLogger("distserve_worker.transfer").addHandler(Telling())
if sys.argv[1] == "pod":
    tell(Hosting([0]).name)
else:
    tell(TcpServing(listen("127.0.0.1", 0), "127.0.0.1", 4).endpoint)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
tell("full")
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
sys.stdin.readline()
"""


def _connected(kind: str, address: str) -> socket.socket:
    if kind == "pod":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(SECONDS)
        sock.connect(f"\0{address}")
        return sock
    sock = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=SECONDS)
    sock.sendall(pack_hello(bytes(TICKET_BYTES)))
    return sock


def _is_answered(kind: str, sock: socket.socket) -> bool:
    if kind == "tcp":
        return received(sock, HEADER_BYTES) == pack_header(Header(Status.REFUSED))
    greeting, files, _, _ = socket.recv_fds(sock, len(GREETING), 4)
    for file in files:
        os.close(file)
    return greeting == GREETING


@pytest.mark.parametrize("kind", ["pod", "tcp"])
def test_a_process_without_free_descriptors_serves_when_it_has_some_again(kind: str) -> None:
    """B3: the connections that came meanwhile are not lost either."""
    command = [sys.executable, "-c", _SERVE, kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        lines = _lines(process.stdout)
        address = next(lines)
        told = list(
            itertools.takewhile(lambda line: line != "full", lines)
        )  # a listener that begins late fails at once
        with _connected(kind, address) as first, _connected(kind, address) as second:
            assert (told or [next(lines)]) == ["failing"]
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert _is_answered(kind, first)
            assert _is_answered(kind, second)


def _lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    return (line.strip() for line in stream)


@contextlib.contextmanager
def accepting(most: int, patience: float = 0.0) -> Iterator[int]:
    """The port of one that gives every byte back."""

    def echo(sock: socket.socket) -> None:
        while data := sock.recv(1):
            sock.sendall(data)

    listener = listen("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    with contextlib.closing(Accepting(listener, echo, most, "echo", patience)):
        yield port


def _met(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    sock.sendall(b"?")
    return sock


def test_one_connection_too_many_is_closed_and_the_others_stay() -> None:
    with accepting(most=1) as port, _met(port) as first:
        assert first.recv(1) == b"?"
        with _met(port) as second, contextlib.suppress(ConnectionResetError):
            assert second.recv(1) == b""
        first.sendall(b"!")
        assert first.recv(1) == b"!"


def test_one_connection_too_many_waits_where_there_is_patience() -> None:
    with accepting(most=1, patience=SECONDS) as port, _met(port) as first:
        assert first.recv(1) == b"?"
        with _met(port) as second:
            first.close()
            assert second.recv(1) == b"?"


def test_without_room_for_a_thread_a_connection_is_closed_and_a_later_one_served() -> None:
    """A pod has a limit of threads too."""
    with accepting(most=4) as port:
        with _met(port) as first:
            assert first.recv(1) == b"?"
        usual = threading.stack_size(1 << 46)  # more than there are addresses
        try:
            with _met(port) as unlucky, contextlib.suppress(ConnectionResetError):
                assert unlucky.recv(1) == b""
        finally:
            threading.stack_size(usual)
        with _met(port) as later:
            assert later.recv(1) == b"?"


def test_closing_ends_every_connection() -> None:
    with contextlib.ExitStack() as stack:
        with accepting(most=2) as port:
            socks = [stack.enter_context(_met(port)) for _ in range(2)]
            assert [sock.recv(1) for sock in socks] == [b"?", b"?"]
        assert [sock.recv(1) for sock in socks] == [b"", b""]
        with pytest.raises(ConnectionRefusedError):
            _met(port)
