"""What the workers of this version can run: the one place to change when they learn more."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Capability:
    """Bounds of an instance, and which kinds of fleet there are."""

    widest: int  # tp
    deepest: int  # pp
    colocated: bool  # instances for both phases
    inside_nodes: bool  # prefill and decode of a segment in one pod, so that KV stays in its node

    @property
    def fewest_devices(self) -> int:
        """Devices of the smallest fleet."""
        return 1 if self.colocated else 2


WORKERS: Final = Capability(widest=1, deepest=1, colocated=False, inside_nodes=False)
# The same for people.
WORKERS_TEXT: Final = "this version runs instances of one device, prefill and decode in pods of their own on any nodes"
