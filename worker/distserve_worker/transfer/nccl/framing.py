"""What the two ends of the nccl transport tell each other beside the data, over one connection for each pair of ranks.

A reader connects and gives an identity, under which both make a communicator, over which the serving side sends a first
message. Then, one after another: the reader shows a ticket, is told what comes, takes it, and says that it has it.
"""

import struct
from typing import Final

from distserve_worker.transfer.nccl.pynccl import ID_BYTES
from distserve_worker.transfer.tickets import TICKET_BYTES

NAME: Final = "nccl"
MAGIC: Final = b"DSKN\x00\x00\x00\x01"  # the last four bytes are the version
HELLO: Final = struct.Struct(f">8s{ID_BYTES}s")
REQUEST: Final = struct.Struct(f">{TICKET_BYTES}s")
HEADER: Final = struct.Struct(">?IQ")  # is there such an offer, blocks, bytes
TAKEN: Final = b"\x01"
FIRST_BYTES: Final = 1024  # of the first message: its bytes count from 0
CHUNK_BYTES: Final = 64 << 20  # of GPU memory on both sides while a transfer runs


def first_message() -> list[int]:
    """What is sent to try a communicator."""
    return [place % 256 for place in range(FIRST_BYTES)]
