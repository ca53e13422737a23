"""Connections between two pulls are bounded in number and time, and ended by nobody who has used them before."""

import contextlib
import socket
import time

from distserve_worker.transfer.tcp.connection import Connection
from distserve_worker.transfer.tcp.keeping import KeptConnections

SECONDS = 20.0


def test_an_end_of_one_use_comes_too_late_for_the_next() -> None:
    """B5: on either side."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        use = Connection(ours, time.monotonic() + SECONDS)
        sock = use.release()
        use.abort()
        use.close()
        sock.sendall(b"!")
        assert theirs.recv(1) == b"!"


def pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    made = [socket.socketpair() for _ in range(count)]
    for _, theirs in made:
        theirs.settimeout(SECONDS)
    return made


def test_kept_connections_are_bounded_for_each_peer_and_for_all() -> None:
    keeping = KeptConnections()
    with contextlib.ExitStack() as stack:
        made = pairs(80)
        for ours, theirs in made:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        for ours, _ in made[:9]:
            keeping.put("a", ours)
        assert made[0][1].recv(1) == b""
        for place, (ours, _) in enumerate(made[9:]):
            keeping.put(f"b{place}", ours)
        assert [theirs.recv(1) for _, theirs in made[1:16]] == [b""] * 15
        assert keeping.take("a") is None
        assert keeping.take("b70") is made[-1][0]
        keeping.close()
        assert [theirs.recv(1) for _, theirs in made[16:79]] == [b""] * 63
        keeping.put("a", made[79][0])
        assert made[79][1].recv(1) == b""


def test_the_reader_closes_what_it_has_not_used_for_long() -> None:
    keeping = KeptConnections(seconds=0.05)
    for _ in range(2):
        ((ours, theirs),) = pairs(1)
        with theirs:
            keeping.put("a", ours)
            assert theirs.recv(1) == b""
    assert keeping.take("a") is None
