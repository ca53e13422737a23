"""Over how many nodes the instances of a fleet spread, each node with one network link."""

from collections.abc import Sequence
from functools import lru_cache

from distserve_operator.placement.device import Inventory
from distserve_operator.placement.shape import Pool


def link_share(inventory: Inventory, pools: Sequence[Pool]) -> float:
    """Part of a network link, up to 1, that a request's KV has between two instances.

    Both ends move one request at a time, so the smaller pool says how many move at once; these share the links of the
    nodes that a pool spreads over. More nodes, or more devices on them, never make it less. Hence an instance has no
    more than one link, be it on several nodes: it may have to be only where nodes have few devices.
    """
    return network_links(inventory, pools) / min(pool.replicas for pool in pools)


def network_links(inventory: Inventory, pools: Sequence[Pool]) -> int:
    """Nodes that the instances of every pool are on, spread as evenly as there is room, one link an instance."""
    wide, *others = sorted(pools, key=lambda pool: _piece(pool, inventory), reverse=True)
    width = _piece(wide, inventory)
    pieces = wide.devices // width
    links = min(wide.replicas, _room(inventory, width, width)[0])
    for pool in others:
        nodes, spared = _room(inventory, _piece(pool, inventory), width)
        links = min(links, pool.replicas, max(1, nodes - max(0, pieces - spared)))
    return links


def _piece(pool: Pool, inventory: Inventory) -> int:
    """Devices that have to be on one node."""
    return pool.shape.devices if inventory.whole else pool.shape.tp


@lru_cache(maxsize=1024)
def _room(inventory: Inventory, size: int, width: int) -> tuple[int, int]:
    """Nodes with `size` free devices, and how many pieces of `width` devices, `size` or more, leave it to all of them.

    One piece more than that takes it from one node, which then has no place for another.
    """
    spared = [(free - size) // width for free in (*inventory.free, *inventory.beyond) if free >= size]
    return len(spared), sum(spared)
