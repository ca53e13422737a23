"""Follows the worker pods of a deployment through the API server, for ever.

While the API server is away the last view stays: workers that are gone are noticed by their streams. When it is back,
and whenever a watch ends for whatever reason, the pods are listed anew, so nothing stale stays.
"""

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable
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
        """List, watch, and list again; returns only by being cancelled."""
        await _configure()
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async with client.ApiClient() as api:
                    async for view in self._views(client.CoreV1Api(api)):
                        self.found(view.targets.values())
                        pause = FIRST_PAUSE_SECONDS
            except (
                client.ApiException,
                aiohttp.ClientError,
                WatchEndedError,
                TimeoutError,
                OSError,
                ValueError,
            ) as error:
                log.warning("watching pods of %s/%s: %s", self.namespace, self.deployment, _brief(error))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads re-lists of gateways
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _views(self, api: client.CoreV1Api) -> AsyncIterator[PodView]:
        """The view after the list and after each event, until the watch ends."""
        listed = await self._call(api, LIST_SECONDS, {})
        pods = await listed.json()
        view = PodView.listed(pods["items"], pods["metadata"]["resourceVersion"])
        yield view
        watch = await self._call(
            api, WATCH_SECONDS + LIST_SECONDS, {"watch": True, "resource_version": view.version} | _WATCH
        )
        async for kind, pod in _events(watch):
            view = view.after(kind, pod)
            yield view

    async def _call(self, api: client.CoreV1Api, seconds: float, options: dict[str, Any]) -> aiohttp.ClientResponse:
        """One request for the pods; the answer is read raw, no model of ours needs all of a pod."""
        response: aiohttp.ClientResponse = await api.list_namespaced_pod_without_preload_content(
            self.namespace,
            label_selector=selector(self.deployment),
            _request_timeout=float(seconds),
            **options,
        )
        if response.status != 200:
            raise WatchEndedError(f"HTTP {response.status}: {(await response.text())[:200]}")
        return response


async def _configure() -> None:
    """The pod's own service account, or the kubeconfig that KUBECONFIG names."""
    try:
        if "KUBECONFIG" in os.environ:
            await config.load_kube_config()
        else:
            config.load_incluster_config()
    except config.ConfigException as error:
        raise NoClusterError(f"--deployment needs a service account or $KUBECONFIG: {error}") from error


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
