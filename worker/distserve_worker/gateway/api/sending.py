"""Writes HTTP responses: JSON bodies, errors, and event streams that nothing on the way may buffer."""

import json
from typing import Any

from starlette.types import Send

from distserve_worker.gateway.errors import Problem

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class Reply:
    """One response; knows whether its first byte is out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.status = 0

    async def json(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """Send a complete JSON response."""
        body = json.dumps(content, ensure_ascii=False).encode()
        fixed = {"content-type": "application/json", "content-length": str(len(body))}
        await self._start(status, fixed | (headers or {}))
        await self._body(body, more=False)

    async def problem(self, problem: Problem) -> None:
        """Send an error as a complete response."""
        await self.json(problem.status, problem.body, problem.headers)

    async def stream(self, data: bytes) -> None:
        """Send a part of an event stream at once; the first part brings the status."""
        if not self.started:
            await self._start(200, STREAM_HEADERS)
        await self._body(data, more=True)

    async def end_stream(self, data: bytes = b"") -> None:
        """Send the last part of an event stream."""
        await self._body(data, more=False)

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.started = True
        self.status = status
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
