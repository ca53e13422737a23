"""What the search has to know of a device and of the links between devices."""

from collections.abc import Mapping
from dataclasses import dataclass

from distserve_operator.placement.model import WeightType


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a slot of CPU cores, from its datasheet."""

    name: str
    memory: float  # bytes
    flops: Mapping[WeightType, float]  # dense, per second
    bandwidth: float  # bytes per second, of the memory
    node_link: float  # bytes per second between two devices of a node, each way
    network_link: float  # bytes per second from a node to another, the default where nothing is given
    cache: float | None = None  # bytes of the memory that are set aside for KV; None: whatever the weights leave


@dataclass(frozen=True, slots=True)
class Inventory:
    """Free devices of each node; the search never takes more, nor more than `most` in all.

    `whole`: all stages of an instance share a node, as where an instance is one pod. `beyond`: free devices of nodes
    that a search leaves out as it needs no more; instances spread over them all the same.
    """

    free: tuple[int, ...]
    most: int
    whole: bool = False
    beyond: tuple[int, ...] = ()

    @property
    def one_node(self) -> bool:
        """Whether there is a single node, so that nothing crosses the network."""
        return len(self.free) + len(self.beyond) == 1

    @property
    def devices(self) -> int:
        """Devices that can be taken."""
        return min(self.most, sum(self.free))

    @property
    def nodes(self) -> int:
        """Nodes with free devices."""
        return sum(1 for devices in self.free if devices > 0)
