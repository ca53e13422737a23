"""Asks a gateway pod whether it could take a request now, over the address and the API that clients use."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from distserve_operator.observed.answer import CannotServe, GatewayAnswer, NoAnswer, Serves
from distserve_operator.observed.gateway import GatewayPod
from distserve_proto.addresses import format_address
from distserve_proto.contract import GATEWAY_HTTP_PORT

# A worker that has just become ready is attached to within a moment: that is no news worth a condition.
PATIENCE_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.2
_LONGEST_ANSWER: Final = 64 * 1024


class GatewayClient:
    """Each question takes about two seconds at most, whatever the gateway does."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, pod: GatewayPod, model: str) -> GatewayAnswer:
        """Whether `pod` serves `model`; one that does not yet gets a little time."""
        url = f"http://{format_address(pod.address, GATEWAY_HTTP_PORT)}/v1/models/{quote(model, safe='')}"
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_SECONDS
        while True:
            # not 0, which would be no limit at all
            answer = await self._ask(url, max(end - loop.time(), _PAUSE_SECONDS))
            if isinstance(answer, Serves) or loop.time() + _PAUSE_SECONDS >= end:
                return answer
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask(self, url: str, seconds: float) -> GatewayAnswer:
        try:
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                return _understood(url, response.status, await _beginning(response.content))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return NoAnswer(f"GET {url}: {error or type(error).__name__}")


def gateway_session() -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """Keeps no connection open, so that no gateway waits for us when it ends, and no cookies."""
    connector = aiohttp.TCPConnector(force_close=True)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


async def _beginning(stream: aiohttp.StreamReader) -> bytes:
    content = b""
    async for part in stream.iter_any():
        content += part
        if len(content) > _LONGEST_ANSWER:
            break
    return content


def _understood(url: str, status: int, content: bytes) -> GatewayAnswer:
    match _decoded(content):
        case {"object": "model"} if status == 200:
            return Serves()
        case {"error": {"message": str(message)}}:
            return CannotServe(message)
    return NoAnswer(f"GET {url}: HTTP {status}, not what a gateway answers")


def _decoded(content: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(content)
    except ValueError:
        return None
