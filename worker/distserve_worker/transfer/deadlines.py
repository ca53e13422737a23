"""How long a transfer may take: both ends compute the same limits."""

from typing import Final

STALL_SECONDS: Final = 5.0  # without one byte of progress
HANDSHAKE_SECONDS: Final = 5.0  # from connection to ticket
READER_KEEPS_SECONDS: Final = 30.0  # a connection between two transfers
SERVER_KEEPS_SECONDS: Final = 60.0  # longer, so that it is the reader that lets go: it never begins on a dead one then
UNANSWERED_SECONDS: Final = 60.0  # by a machine that is asked whether it is still there; then it is gone
_SLOWEST_BYTES_PER_SECOND: Final = 25e6  # a shared 1 Gbit/s link at a fifth of its speed
_START_SECONDS: Final = 10.0


def transfer_seconds(nbytes: int) -> float:
    """Seconds from the offer to the end of the transfer of `nbytes`."""
    return _START_SECONDS + nbytes / _SLOWEST_BYTES_PER_SECOND
