"""HTTP of a worker: alive, routable, metrics."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from distserve_worker.server.metrics import CONTENT_TYPE, Metrics
from distserve_worker.server.pulse import Pulse
from distserve_worker.server.state import State

_KEEP_ALIVE_SECONDS: Final = 5
_STOP_SECONDS: Final = 2.0  # connections that do not end may be left to the process's end
_MAX_CONNECTIONS: Final = 256


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the worker, which drains first."""
        yield


class HealthServer:
    """Runs from before the model is loaded until the process ends."""

    def __init__(self, state: State, metrics: Metrics, pulse: Pulse) -> None:
        async def alive(_: Request) -> Response:
            complaint = pulse.complaint
            return PlainTextResponse(f"{complaint or 'ok'}\n", status_code=503 if complaint else 200)

        async def ready(_: Request) -> Response:
            complaint = pulse.complaint
            is_ready = state.ready and complaint is None
            return PlainTextResponse(f"{complaint or state.text}\n", status_code=200 if is_ready else 503)

        async def measured(_: Request) -> Response:
            return Response(metrics.text(), media_type=CONTENT_TYPE)

        routes = [Route("/healthz", alive), Route("/readyz", ready), Route("/metrics", measured)]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            limit_concurrency=_MAX_CONNECTIONS,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket) -> None:
        """Serve on a listening socket."""
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")

    async def stop(self) -> None:
        """End, connections included, within a deadline."""
        self._server.should_exit = True
        self._server.force_exit = True
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_STOP_SECONDS)
