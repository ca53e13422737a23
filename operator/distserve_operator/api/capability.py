"""What the workers of this version can run: the one place to change when they learn more."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Capability:
    """Which kinds of fleet there are besides instances of one pod each."""

    across_nodes: bool  # instances of several pods, with stages on several nodes
    inside_nodes: bool  # prefill and decode of a segment in one pod, so that KV stays in its node


WORKERS: Final = Capability(across_nodes=False, inside_nodes=False)
# The same for people.
WORKERS_TEXT: Final = (
    "this version runs an instance in one pod, so on one node, and prefill and decode in different ones"
)
