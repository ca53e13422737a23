"""JSON requests to the API server, each with a deadline."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
from kubernetes.aio import client

from distserve_operator.cluster.errors import ApiRefusedError, ApiUnreachableError

FIELD_MANAGER: Final = "distserve-operator"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=15, sock_connect=5)
_OK: Final = range(200, 300)

Json = dict[str, Any]


class Api:
    """Plain objects in, plain objects out. Every method raises `ApiRefusedError` or `ApiUnreachableError`."""

    def __init__(self, connection: client.ApiClient) -> None:
        self._connection = connection

    async def get(self, path: str, query: Mapping[str, str] | None = None, accept: str = _JSON) -> Json:
        """Read an object or a list."""
        return await self._request("GET", path, query=query, accept=accept)

    async def items(
        self, path: str, query: Mapping[str, str], page_size: int, accept: str = _JSON
    ) -> AsyncIterator[Json]:
        """All objects of a list, page by page."""
        asked = {**query, "limit": str(page_size)}
        while True:
            page = await self.get(path, asked, accept)
            for item in page["items"] or ():  # null where there is none: Go writes a slice so that nobody added to
                yield item
            more = page["metadata"].get("continue")
            if not more:
                return
            asked["continue"] = more

    async def create(self, path: str, body: Mapping[str, Any]) -> Json:
        """POST an object to the path of its list."""
        return await self._request("POST", path, body=body, query={"fieldManager": FIELD_MANAGER})

    async def apply(self, path: str, body: Mapping[str, Any]) -> Json:
        """Server-side apply: we own the fields in `body`, and take them from whoever set them."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, body=body, query=query, content_type=APPLY)

    async def merge(self, path: str, body: Mapping[str, Any]) -> Json:
        """JSON merge patch."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request("PATCH", path, body=body, query=query, content_type=MERGE)

    async def delete(self, path: str, uid: str) -> Json:
        """Delete the object with `uid`, not another one that has taken its name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        return await self._request("DELETE", path, body=body)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Json:
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            verb, url, sent, content, _ = await self._connection.param_serialize(
                method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            response = await self._connection.call_api(verb, url, sent, content, _request_timeout=_TIMEOUT)
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachableError(f"{method} {path}: {error or type(error).__name__}") from error
        answer = _decoded(text)
        if response.status not in _OK:
            raise ApiRefusedError.of_answer(response.status, answer)
        return answer if isinstance(answer, dict) else {}


def _decoded(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text)
    except ValueError:
        return None
