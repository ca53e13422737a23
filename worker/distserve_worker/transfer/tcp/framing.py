"""Bytes of the tcp transport: hello (magic, ticket), header (status, blocks, bytes), the blocks, trailer.

The trailer tells a complete transfer from one that was cut. There is no checksum of the data: crc32 over every block
costs a third of the throughput on loopback, TCP has its own, and blocks cannot change hands while they are pinned.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from distserve_worker.transfer.tickets import TICKET_BYTES

NAME: Final = "tcp"
TRAILER: Final = b"DSKVend1"
_MAGIC: Final = b"DSKV\x00\x00\x00\x01"  # the last four bytes are the version
_HELLO: Final = struct.Struct(f">8s{TICKET_BYTES}s")
_HEADER: Final = struct.Struct(">8sIIQ")
HELLO_BYTES: Final = _HELLO.size
HEADER_BYTES: Final = _HEADER.size


class Status(IntEnum):
    """First answer of the serving side."""

    READY = 0
    REFUSED = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What the serving side is about to send."""

    status: Status
    blocks: int = 0
    nbytes: int = 0


def pack_hello(ticket: bytes) -> bytes:
    """First bytes of the pulling side."""
    return _HELLO.pack(_MAGIC, ticket)


def unpack_hello(data: bytes) -> bytes:
    """The ticket. Raises ValueError for anything but this protocol."""
    magic, ticket = _HELLO.unpack(data)
    if magic != _MAGIC:
        raise ValueError("not a hello of this protocol version")
    return bytes(ticket)


def pack_header(header: Header) -> bytes:
    """First bytes of the serving side."""
    return _HEADER.pack(_MAGIC, header.status, header.blocks, header.nbytes)


def unpack_header(data: bytes) -> Header:
    """Raises ValueError for anything but this protocol."""
    magic, status, blocks, nbytes = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise ValueError("not a header of this protocol version")
    return Header(Status(status), blocks, nbytes)
