"""Compares the cache with the API server, for what broken watches have missed.

kopf reports no deletions that happened while its watch was broken for so long that it had to list anew (B19).
"""

from collections.abc import Iterable
from typing import Final

from distserve_operator.cluster.caching import Key, ObjectCache
from distserve_operator.cluster.kinds import DEPLOYMENT_RESOURCE, WATCHED, Kind
from distserve_operator.cluster.requesting import Api
from distserve_proto.contract import LABEL_DEPLOYMENT

_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE: Final = 500


async def find_lost(api: Api, cache: ObjectCache, namespaces: Iterable[str | None]) -> set[Key]:
    """Mark what is gone in the cache; returns the deployments concerned. `None` is all namespaces."""
    where, concerned = list(namespaces), set()
    for kind in WATCHED:
        # Taken before the list: an object that is in it and not in the list has gone, none is merely too new.
        known = cache.uids(kind.name)
        if not known:
            continue
        listed = [uid for namespace in where for uid in await _listed(api, kind, namespace)]
        lost = known.keys() - set(listed)
        cache.lost(lost)
        concerned |= {known[uid] for uid in lost}
    return concerned


async def _listed(api: Api, kind: Kind, namespace: str | None) -> list[str]:
    query = {} if kind is DEPLOYMENT_RESOURCE else {"labelSelector": LABEL_DEPLOYMENT}
    items = api.items(kind.path(namespace), query, _PAGE, _METADATA_ONLY)
    return [item["metadata"]["uid"] async for item in items]
