"""Opens every transport that a rank's memory can have."""

import socket

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.agent import LocalAgent
from distserve_worker.transfer.tcp.pulling import TcpPulling
from distserve_worker.transfer.tcp.serving import TcpServing


def open_serving_agent(region: Region, listener: socket.socket, advertised_host: str, max_transfers: int) -> LocalAgent:
    """The serving ends; takes over `listener`, whose port readers find at `advertised_host`."""
    return LocalAgent(region, [TcpServing(listener, advertised_host, max_transfers)], [])


def open_pulling_agent(region: Region) -> LocalAgent:
    """The pulling ends."""
    return LocalAgent(region, [], [TcpPulling()])
