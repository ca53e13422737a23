"""How long a download waits, for a hub and for other processes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """`pause_seconds`: after the first connection that broke, longer after further ones.

    `still_seconds`: for another process that downloads the same file, while nobody writes to it.
    """

    pause_seconds: float = 1.0
    still_seconds: float = 600.0
