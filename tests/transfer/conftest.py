"""Real memory, a real listener on loopback and raw sockets for the transport tests."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from distserve_testing.endings import Ending
from distserve_testing.regions import random_region

from distserve_proto.addresses import parse_address
from distserve_worker.engine.interface import KvLayout
from distserve_worker.transfer.interface import Source
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.memory.selection import Selection
from distserve_worker.transfer.tcp.serving import TcpServing

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="FP32")
MAX_TRANSFERS = 2


@pytest.fixture
def make_memory() -> Callable[..., Selection]:
    """All blocks of a region of their own; random unless a filling byte is given."""

    def make(blocks: int, filling: int | None = None, layout: KvLayout = LAYOUT) -> Selection:
        region = random_region(layout, blocks)
        if filling is not None:
            region.memory.fill_(filling)
        return Selection(region, tuple(range(blocks)), region.shard)

    return make


@pytest.fixture
def ending() -> Ending:
    return Ending()


@pytest.fixture
def serving() -> Iterator[TcpServing]:
    side = TcpServing(listen("127.0.0.1", 0), "127.0.0.1", MAX_TRANSFERS)
    yield side
    side.close()


@pytest.fixture
def deadline() -> float:
    return time.monotonic() + 20


@pytest.fixture
def connect() -> Iterator[Callable[[Source], socket.socket]]:
    """Raw connections to a serving side, closed at the end of the test."""
    sockets: list[socket.socket] = []

    def open_socket(source: Source) -> socket.socket:
        address = parse_address(source.endpoint)
        sockets.append(socket.create_connection((address.host, address.port), timeout=20))
        return sockets[-1]

    yield open_socket
    for sock in sockets:
        sock.close()
