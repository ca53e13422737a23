"""kopf's part: it watches and indexes, and says which deployment something has happened to. Nothing else happens here.

Only `on.event` and `index` are used. They leave nothing behind on objects: no finalizer (a deletion would hang while
the operator is away) and no annotation. They have no retries either; those are the work queue's.
"""

from collections.abc import Mapping
from typing import Any, Final

import kopf

from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE, WATCHED, Kind
from distserve_operator.names import label_value
from distserve_operator.observed.metadata import controller
from distserve_operator.reconciling.work_queue import WorkQueue
from distserve_proto.contract import LABEL_DEPLOYMENT

_CONNECT_SECONDS: Final = 5
_REQUEST_SECONDS: Final = 30
# The server ends each watch after this; kopf resumes it where it was.
_WATCH_SECONDS: Final = 300
# Short and many: an API server that was away is noticed within two seconds of its return.
_BACKOFFS: Final = (0.5, 1, *[2] * 14)
_EXIT_SECONDS: Final = 20


def operator_registry(cache: ObjectCache, queue: WorkQueue[Key]) -> kopf.OperatorRegistry:
    """Handlers of all kinds; they fill `cache` and `queue`."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_via_client)

    @kopf.on.startup(registry=registry)
    async def bind(**kwargs: Any) -> None:  # noqa: ANN401 - kopf passes what it likes
        cache.bind({kind.name: kwargs[kind.plural] for kind in WATCHED})

    for kind in WATCHED:
        _register(registry, kind, cache, queue)
    return registry


def operator_settings() -> kopf.OperatorSettings:
    """Every wait is bounded; a watch that cannot be kept ends the process, so that the pod starts anew."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.connect_timeout = _CONNECT_SECONDS
    settings.networking.request_timeout = _REQUEST_SECONDS
    settings.networking.error_backoffs = _BACKOFFS
    settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.watching.server_timeout = _WATCH_SECONDS
    settings.process.ultimate_exiting_timeout = _EXIT_SECONDS
    for kind in WATCHED:
        if kind is not DEPLOYMENT_RESOURCE:
            settings.watching.label_selectors[_selector(kind)] = LABEL_DEPLOYMENT
    return settings


def _register(registry: kopf.OperatorRegistry, kind: Kind, cache: ObjectCache, queue: WorkQueue[Key]) -> None:
    coordinates = (kind.group, kind.version, kind.plural)

    @kopf.index(*coordinates, id=kind.plural, registry=registry)
    async def index(body: kopf.Body, **_: Any) -> dict[Key, Mapping[str, Any]]:  # noqa: ANN401
        return {_key(kind, body): _without_managed_fields(body)}

    # kopf calls this only after all kinds have been listed and indexed.
    @kopf.on.event(*coordinates, id=kind.plural, registry=registry)
    async def notice(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:  # noqa: ANN401
        cache.complete()
        if event["type"] == "DELETED":
            cache.forget(body["metadata"]["uid"])
        queue.add(_key(kind, body))


def _key(kind: Kind, body: kopf.Body) -> Key:
    """The deployment that an object belongs to, by namespace and label; by its owner when the label was taken away."""
    metadata = body["metadata"]
    if kind is DEPLOYMENT_RESOURCE:
        return metadata["namespace"], label_value(metadata["name"])
    label = (metadata.get("labels") or {}).get(LABEL_DEPLOYMENT)
    owner = controller(metadata)
    if label is None and owner is not None and owner.get("kind") == DEPLOYMENT_RESOURCE.name:
        label = label_value(owner["name"])
    return metadata["namespace"], label or ""


def _without_managed_fields(body: kopf.Body) -> dict[str, Any]:
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def _selector(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural
