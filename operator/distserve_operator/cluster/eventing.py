"""Events on the custom resource, for `kubectl describe`: bounded, never in the way of the work."""

import asyncio
import logging
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from distserve_operator.cluster.errors import ApiRefusedError, ApiUnreachableError
from distserve_operator.cluster.kinds import EVENT
from distserve_operator.cluster.requesting import FIELD_MANAGER, Api
from distserve_operator.names import label_value

log = logging.getLogger(__name__)

_WAITING: Final = 256
_REMEMBERED: Final = 1024
_SILENCE_SECONDS: Final = 600.0
_LONGEST_NOTE_BYTES: Final = 1024

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of `kubectl describe`; `action` is what the operator did or tried."""

    type: EventType
    reason: str
    action: str
    note: str


class EventRecorder:
    """Posts in the background. What is repeated within ten minutes, or does not fit the queue, is dropped."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._queue: asyncio.Queue[tuple[Mapping[str, Any], Happening]] = asyncio.Queue(_WAITING)
        self._said: OrderedDict[tuple[str, Happening], float] = OrderedDict()
        self._instance = os.environ.get("HOSTNAME") or socket.gethostname()

    def record(self, resource: Mapping[str, Any], happening: Happening) -> None:
        """Post an event about a custom resource."""
        said, now = (resource["metadata"]["uid"], happening), time.monotonic()
        if now - self._said.get(said, -_SILENCE_SECONDS) < _SILENCE_SECONDS:
            return
        self._said.pop(said, None)
        self._said[said] = now
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        try:
            self._queue.put_nowait((resource, happening))
        except asyncio.QueueFull:
            log.warning("event dropped, too many are waiting: %s: %s", happening.reason, happening.note)

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            resource, happening = await self._queue.get()
            try:
                await self._api.create(EVENT.path(resource["metadata"]["namespace"]), self._event(resource, happening))
            except (ApiRefusedError, ApiUnreachableError) as error:
                log.warning("event not posted: %s: %s: %s", happening.reason, happening.note, error)

    def _event(self, resource: Mapping[str, Any], happening: Happening) -> dict[str, Any]:
        metadata, now = resource["metadata"], datetime.now(UTC)
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{label_value(metadata['name'])[:40].rstrip('-._')}.{time.time_ns():x}",
                "namespace": metadata["namespace"],
            },
            "eventTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "reportingController": f"distserve.io/{FIELD_MANAGER}",
            "reportingInstance": self._instance[:128],
            "type": happening.type,
            "reason": happening.reason,
            "action": happening.action,
            "note": _cut(happening.note),
            "regarding": {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }


def _cut(note: str) -> str:
    """At most as many bytes as the API takes, no character of them cut in two."""
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE_BYTES:
        return note
    end = "…"
    return encoded[: _LONGEST_NOTE_BYTES - len(end.encode())].decode(errors="ignore") + end
