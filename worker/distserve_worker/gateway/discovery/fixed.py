"""Workers that are named on the command line."""

from collections.abc import Iterable

from distserve_worker.gateway.workers.attaching import Target


def targets(addresses: Iterable[str]) -> list[Target]:
    """One target for each `host:port`; it is known by its address."""
    return [Target(instance=address, address=address) for address in addresses]
