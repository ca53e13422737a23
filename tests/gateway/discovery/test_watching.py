"""Following pods through an API server that fails in ways that a real one cannot be made to show on demand."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from distserve_worker.gateway.discovery.watching import NoClusterError, PodWatch
from distserve_worker.gateway.workers.attaching import Target

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
WAIT_SECONDS = 30


def pod(name: str, padding: str = "") -> dict[str, Any]:
    labels = {"distserve.io/role": "decode", "distserve.io/segment": "0"}
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "uid": name, "resourceVersion": "5", "labels": labels, "annotations": {"x": padding}}
    return {"metadata": metadata, "status": status}


def lists(*names: str) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "4"}, "items": [pod(name) for name in names]})

    return answer


def fails(status: int) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text="no")

    return answer


def watches(*events: tuple[str, Any], cut: bool = False) -> Answer:
    """A watch that ends after its events, in the middle of one when `cut`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for kind, content in events:
            await response.write(json.dumps({"type": kind, "object": content}).encode() + b"\n")
        if cut:
            await response.write(b'{"type": "ADD')
        return response

    return answer


class Views:
    """What discovery told, in order."""

    def __init__(self) -> None:
        self.seen: list[set[str]] = []
        self._changed = asyncio.Event()

    def __call__(self, targets: Iterable[Target]) -> None:
        self.seen.append({target.instance for target in targets})
        self._changed.set()

    async def until(self, *expected: set[str]) -> None:
        """Wait for a number of views, and compare them."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.seen) < len(expected):
                self._changed.clear()
                await self._changed.wait()
        assert self.seen[: len(expected)] == list(expected)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    @asynccontextmanager
    async def follow(*answers: Answer) -> AsyncIterator[Views]:
        """Follow an API server that gives these answers one after the other, and the last one for ever."""
        left = list(answers)

        async def handle(request: web.Request) -> web.StreamResponse:
            answer = left.pop(0) if len(left) > 1 else left[0]
            return await answer(request)

        application = web.Application()
        application.router.add_get("/api/v1/namespaces/team/pods", handle)
        async with TestServer(application) as server:
            monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(tmp_path, str(server.make_url("")))))
            views = Views()
            following = asyncio.create_task(PodWatch("chat", "team", views).run())
            yield views
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    return follow


def _kubeconfig(folder: Path, url: str) -> Path:
    named = {
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}))
    return file


async def test_a_watch_that_is_gone_is_resumed_with_a_list(serve: Any) -> None:
    """B19: 410 Gone; what is not in the new list is not known any more."""
    gone = watches(("ADDED", pod("b")), ("ERROR", {"code": 410, "message": "too old resource version"}))
    async with serve(lists("a"), gone, lists("c"), watches(), lists("c")) as views:
        await views.until({"a"}, {"a", "b"}, {"c"})


async def test_a_watch_that_breaks_off_is_resumed_with_a_list(serve: Any) -> None:
    """B19."""
    async with serve(lists("a"), watches(cut=True), lists("b"), watches(), lists("b")) as views:
        await views.until({"a"}, {"b"})


async def test_known_workers_stay_while_the_api_server_fails(serve: Any) -> None:
    """B19: nothing is told until it answers again."""
    async with serve(lists("a"), watches(), fails(500), fails(403), lists("a", "b")) as views:
        await views.until({"a"}, {"a", "b"})


async def test_a_pod_of_any_size_is_read(serve: Any) -> None:
    async with serve(lists(), watches(("ADDED", pod("large", "x" * 500_000))), fails(500)) as views:
        await views.until(set(), {"large"})


async def test_without_access_to_a_cluster_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoClusterError, match="service account or"):
        await PodWatch("chat", "team", Views()).run()
