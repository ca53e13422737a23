"""Follows the worker pods of a deployment through the API server, for ever.

While the API server is away the last view stays: workers that are gone are noticed by their streams. When it is back,
and whenever a watch ends for whatever reason, the pods are listed anew, so nothing stale stays.
"""

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from distserve_worker.gateway.discovery.pods import Pod, PodView, selector
from distserve_worker.gateway.workers.attaching import Target

log = logging.getLogger(__name__)

LIST_SECONDS = 15
WATCH_SECONDS = 60  # the server ends a watch after it; a connection that died without a word lives no longer
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0

_WATCH = {"allow_watch_bookmarks": True, "timeout_seconds": WATCH_SECONDS}


class WatchEndedError(Exception):
    """The API server ended the watch with an error, for example 410 Gone."""


class NoClusterError(OSError):
    """There is neither a service account nor a kubeconfig to talk to the API server with."""


_API_TROUBLE = (client.ApiException, aiohttp.ClientError, WatchEndedError, TimeoutError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class PodWatch:
    """The pods of one deployment in one namespace; `found` gets all targets whenever they may have changed."""

    deployment: str
    namespace: str
    found: Callable[[Iterable[Target]], None]

    async def run(self) -> None:
        """List, watch, and list again; returns only by being cancelled. Raises `NoClusterError` at the start."""
        configuration = await _configuration()
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async with client.ApiClient(configuration) as api, aclosing(self._views(api)) as views:
                    async for view in views:
                        self.found(view.targets.values())
                        pause = FIRST_PAUSE_SECONDS
            except _API_TROUBLE as error:
                log.warning("watching pods of %s/%s: %s", self.namespace, self.deployment, _brief(error))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads re-lists of gateways
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _views(self, api: client.ApiClient) -> AsyncGenerator[PodView]:
        """The view after the list and after each event, until the watch ends."""
        async with self._call(api, LIST_SECONDS, {}) as response:
            pods = await response.json()
        view = PodView.listed(pods["items"] or [], pods["metadata"]["resourceVersion"])
        yield view
        options = {"watch": True, "resource_version": view.version} | _WATCH
        async with self._call(api, WATCH_SECONDS + LIST_SECONDS, options) as response:
            async for kind, pod in _events(response):
                view = view.after(kind, pod)
                yield view

    @asynccontextmanager
    async def _call(
        self, api: client.ApiClient, seconds: float, options: dict[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request for the pods; the answer is read raw, no model of ours needs all of a pod."""
        response: aiohttp.ClientResponse = await client.CoreV1Api(api).list_namespaced_pod_without_preload_content(
            self.namespace,
            label_selector=selector(self.deployment),
            _request_timeout=float(seconds),
            **options,
        )
        try:
            if response.status != 200:
                raise WatchEndedError(f"HTTP {response.status}: {(await response.text())[:200]}")
            yield response
        finally:
            response.close()


async def _configuration() -> client.Configuration:
    """Access by the kubeconfig that KUBECONFIG names, or else by the pod's own service account."""
    configuration = client.Configuration()
    file = os.environ.get("KUBECONFIG")
    try:
        if file is None:
            config.load_incluster_config(configuration)
        else:
            await config.load_kube_config(file, client_configuration=configuration)
    except config.ConfigException as error:
        raise NoClusterError(f"--deployment needs a service account or $KUBECONFIG: {error}") from error
    return configuration


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Pod]]:
    """Events of a watch, one JSON object a line; a line may be longer than aiohttp's own line reader allows."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise WatchEndedError(f"{event['object'].get('code')}: {event['object'].get('message')}")
            yield event["type"], event["object"]


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
