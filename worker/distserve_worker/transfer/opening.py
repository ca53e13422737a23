"""Opens every transport that a rank's memory can have."""

import logging
import socket
from collections.abc import Callable
from typing import Final

from distserve_worker.engine.interface import Region
from distserve_worker.transfer.agent import LocalAgent
from distserve_worker.transfer.cuda_ipc import serving as cuda_ipc
from distserve_worker.transfer.cuda_ipc.pulling import cuda_ipc_pulling
from distserve_worker.transfer.cuda_ipc.serving import CudaIpcServing
from distserve_worker.transfer.interface import Pulling, Serving, TransferError
from distserve_worker.transfer.listening import listen
from distserve_worker.transfer.nccl import framing as nccl
from distserve_worker.transfer.nccl import pynccl
from distserve_worker.transfer.nccl.pulling import NcclPulling
from distserve_worker.transfer.nccl.serving import NcclServing
from distserve_worker.transfer.shm.pulling import shm_pulling
from distserve_worker.transfer.shm.serving import ShmServing
from distserve_worker.transfer.tcp.pulling import TcpPulling
from distserve_worker.transfer.tcp.serving import TcpServing
from distserve_worker.transfer.turns import Turns

log = logging.getLogger(__name__)

MAX_TRANSFERS: Final = 256  # that one rank serves side by side over each transport


def open_agent(
    region: Region, listener: socket.socket, advertised_host: str, max_transfers: int = MAX_TRANSFERS
) -> LocalAgent:
    """Both ends; takes over `listener`, whose port readers find at `advertised_host`."""
    tcp = TcpServing(listener, advertised_host, max_transfers)
    if region.memory.is_cuda:
        host = listener.getsockname()[0]
        best: list[Serving] = _of_a_gpu(region, host, advertised_host, max_transfers)
    else:
        best = [ShmServing(region, max_transfers)] if region.file is not None else []
    return LocalAgent(region, [*best, tcp], _pullings(region))


def open_pulling_agent(region: Region) -> LocalAgent:
    """The pulling ends only."""
    return LocalAgent(region, [], _pullings(region))


def _of_a_gpu(region: Region, host: str, advertised_host: str, max_transfers: int) -> list[Serving]:
    """Inside a pod a GPU copies faster by itself than NCCL does."""
    ways: dict[str, Callable[[], Serving]] = {cuda_ipc.NAME: lambda: CudaIpcServing(region, max_transfers)}
    if pynccl.is_installed():
        ways[nccl.NAME] = lambda: _over_nccl(region, host, advertised_host, max_transfers)
    return [serving for name, opening in ways.items() if (serving := _opened(name, opening)) is not None]


def _over_nccl(region: Region, host: str, advertised_host: str, max_transfers: int) -> Serving:
    pynccl.require()  # before it listens: a reader makes an identity for whoever answers
    return NcclServing(region, listen(host, 0), advertised_host, max_transfers, Turns())


def _opened(name: str, opening: Callable[[], Serving]) -> Serving | None:
    """None where it cannot be had: tcp is left, so no worker ends for want of a faster way."""
    try:
        return opening()
    except (OSError, TransferError) as error:
        log.warning("%s is not served: %s", name, error)
    except Exception:
        log.exception("%s is not served", name)
    return None


def _pullings(region: Region) -> list[Pulling]:
    if not region.memory.is_cuda:
        return [shm_pulling(), TcpPulling()]
    turns = Turns()
    over_nccl: list[Pulling] = [NcclPulling(region, turns)] if pynccl.is_installed() else []
    return [cuda_ipc_pulling(turns), *over_nccl, TcpPulling()]
