"""Opens the ports of a worker; a port that cannot be had ends the process with its flag's name."""

import socket

import grpc.aio

from distserve_proto.addresses import format_address
from distserve_proto.contract import ExitReason
from distserve_worker.exiting import WorkerFailure
from distserve_worker.transfer.listening import listen


def open_socket(flag: str, host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises `WorkerFailure`."""
    try:
        return listen(host, port)
    except OSError as error:
        raise _taken(flag, host, port, error) from error


def open_grpc(server: grpc.aio.Server, flag: str, host: str, port: int) -> int:
    """Give a gRPC server its port; the real one when `port` is 0. Raises `WorkerFailure`."""
    try:
        return server.add_insecure_port(format_address(host, port))
    except (RuntimeError, ValueError) as error:
        raise _taken(flag, host, port, error) from error


def _taken(flag: str, host: str, port: int, error: Exception) -> WorkerFailure:
    return WorkerFailure(ExitReason.CONFIGURATION_INVALID, f"{flag}: cannot listen on {host} port {port}: {error}")
