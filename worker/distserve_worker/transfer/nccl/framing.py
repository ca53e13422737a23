"""What the two ends of the nccl transport tell each other beside the data, over one connection for each pair of ranks.

A reader connects and says hello. When that is answered it gives an identity, under which both make a communicator, and
the serving side sends a first block. Then, one after another: the reader shows a ticket, is told what comes, takes it,
and says that it has it.
"""

import struct
from typing import Final

from distserve_worker.transfer.tickets import TICKET_BYTES

NAME: Final = "nccl"
HELLO: Final = b"DSKN\x00\x00\x00\x02"  # and its answer; the last four bytes are the version
REQUEST: Final = struct.Struct(f">{TICKET_BYTES}s")
HEADER: Final = struct.Struct(">?IQ")  # is there such an offer, blocks, bytes
TAKEN: Final = b"\x01"
