"""Reads a request body: bounded in size and in time, and refused before it is read where its headers allow it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import Receive, Scope

from distserve_worker.gateway.errors import ApiError, Problem, shown


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a client may send, and how slowly."""

    max_bytes: int
    seconds: float


async def read_body(scope: Scope, receive: Receive, limits: BodyLimits, grow: Callable[[int], None]) -> bytes:
    """The whole body. Raises `ApiError` (408, 413, 415), what `grow` raises at too many bytes, or `ClientGoneError`.

    A body over the limit is never held: what still comes after the refusal is dropped as it arrives.
    """
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    _check_headers(headers, limits.max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            more = True
            while more:
                data, more = await _receive(receive)
                if len(body) + len(data) > limits.max_bytes:
                    raise _too_large(limits.max_bytes)
                grow(len(data))
                body += data
    except TimeoutError:
        message = f"The body did not arrive within {limits.seconds:g} s"
        raise ApiError(Problem(408, message, "invalid_request_error", None, "request_timeout")) from None
    return bytes(body)


async def until_gone(receive: Receive) -> None:
    """Return when the client closes the connection; only after the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _receive(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a body, and whether there is more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    return message.get("body", b""), bool(message.get("more_body", False))


def _check_headers(headers: Mapping[str, str], max_bytes: int) -> None:
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _unsupported_media(f"The content type must be application/json, got {shown(kind)!r}")
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _unsupported_media(f"Bodies must not be compressed, got content-encoding {shown(encoding)!r}")


def _too_large(max_bytes: int) -> ApiError:
    message = f"The body is larger than {max_bytes} bytes"
    return ApiError(Problem(413, message, "invalid_request_error", None, "body_too_large"))


def _unsupported_media(message: str) -> ApiError:
    return ApiError(Problem(415, message, "invalid_request_error", None, "unsupported_media_type"))
