"""Streams OpenAI requests and records how each ended; a stream that stands still for ten seconds is an error."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

STALL_SECONDS = 10


@dataclass(slots=True)
class Stream:
    """One streamed completion: what came, and how it ended. `started` is set at the first text."""

    body: dict[str, Any]
    text: str = ""
    tokens: int = 0
    status: int = 0
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    disconnected: str | None = None
    ended_with_done: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended_well(self) -> bool:
        """Finished with a reason and the end mark."""
        return self.finish_reason is not None and self.error is None and self.ended_with_done

    @property
    def ended_with_typed_error(self) -> bool:
        """An OpenAI-shaped error object, as a status before the first byte or as an event after it."""
        return self.error is not None and {"message", "type", "param", "code"} <= set(self.error)

    async def run(self, client: httpx.AsyncClient) -> "Stream":
        """Send the request and read to its end. Raises httpx.ReadTimeout when nothing comes for STALL_SECONDS."""
        try:
            async with client.stream("POST", "/v1/completions", json=self.body, timeout=STALL_SECONDS) as response:
                self.status = response.status_code
                if response.status_code != httpx.codes.OK:
                    self.error = json.loads(await response.aread())["error"]
                    return self
                async for line in response.aiter_lines():
                    self._take(line.removeprefix("data: "))
        except (httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError) as error:
            self.disconnected = repr(error)
        finally:
            self.started.set()
        return self

    def _take(self, data: str) -> None:
        if data == "[DONE]":
            self.ended_with_done = True
        elif data and not data.startswith(":"):
            event = json.loads(data)
            self.error = event.get("error", self.error)
            for choice in event.get("choices", []):
                self.text += choice["text"]
                self.finish_reason = choice["finish_reason"] or self.finish_reason
                self.tokens += 1
            if self.text:
                self.started.set()


async def start_streams(client: httpx.AsyncClient, bodies: list[dict[str, Any]]) -> list[asyncio.Task[Stream]]:
    """Start all streams and return once each has its first text (or has ended)."""
    streams = [Stream(body) for body in bodies]
    tasks = [asyncio.create_task(stream.run(client)) for stream in streams]
    async with asyncio.timeout(60):
        await asyncio.gather(*(stream.started.wait() for stream in streams))
    return tasks
