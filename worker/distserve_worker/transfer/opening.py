"""Opens every transport that a rank's memory can have."""

import socket

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.agent import LocalAgent
from distserve_worker.transfer.interface import Pulling, Serving
from distserve_worker.transfer.shm.pulling import ShmPulling
from distserve_worker.transfer.shm.serving import ShmServing
from distserve_worker.transfer.tcp.pulling import TcpPulling
from distserve_worker.transfer.tcp.serving import TcpServing


def open_agent(region: Region, listener: socket.socket, advertised_host: str, max_transfers: int) -> LocalAgent:
    """Both ends; takes over `listener`, whose port readers find at `advertised_host`."""
    tcp = TcpServing(listener, advertised_host, max_transfers)
    return LocalAgent(region, [*_servings(region, max_transfers), tcp], _pullings(region))


def open_pulling_agent(region: Region) -> LocalAgent:
    """The pulling ends only."""
    return LocalAgent(region, [], _pullings(region))


def _servings(region: Region, max_transfers: int) -> list[Serving]:
    if region.file is None:
        return []
    return [ShmServing(region, max_transfers)]


def _pullings(region: Region) -> list[Pulling]:
    return [TcpPulling()] if region.memory.is_cuda else [ShmPulling(), TcpPulling()]
