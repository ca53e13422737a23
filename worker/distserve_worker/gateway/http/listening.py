"""Opens the listening socket and serves the application on it until told to stop."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from distserve_proto.addresses import format_address
from distserve_worker.gateway.http.patience import Patience, PatientConfig, PatientProtocol

BACKLOG = 1024
KEEP_ALIVE_SECONDS = 75


def listen(host: str, port: int, send_buffer_bytes: int) -> socket.socket:
    """A listening socket; connections inherit the bound on what the kernel keeps for a client that does not read."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # `::` takes IPv4 too
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    """`host:port` of a listening socket."""
    host, port, *_ = listener.getsockname()
    return format_address(host, port)


class Server(uvicorn.Server):
    """Uvicorn without signal handlers of its own: the process decides what a signal means."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave all signals to the process."""
        yield


def server(application: ASGIApp, patience: Patience, drain_seconds: float) -> Server:
    """A server for `application`; once `should_exit` is set, streams have `drain_seconds` to end."""
    config = PatientConfig(
        application,
        http=PatientProtocol,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    config.patience = patience
    return Server(config)
