"""One deployment as it is now."""

from collections.abc import Mapping
from typing import Any

from distserve_operator.cluster.caching import ObjectCache
from distserve_operator.cluster.kinds import CHILD_KINDS, DEPLOYMENT_RESOURCE, POD
from distserve_operator.observed.children import parse_child
from distserve_operator.observed.fleet import Fleet
from distserve_operator.observed.gateway import gateway_problem, parse_gateway, pods_of_gateway, ready_pod
from distserve_operator.observed.metadata import is_controlled_by
from distserve_operator.observed.pods import parse_pod

Key = tuple[str, str]


def read_resource(cache: ObjectCache, key: Key) -> Mapping[str, Any] | None:
    """The custom resource itself; None when it is gone."""
    return next(iter(cache.objects(DEPLOYMENT_RESOURCE.name, key)), None)


def read_fleet(cache: ObjectCache, key: Key, uid: str) -> Fleet:
    """Everything around the custom resource with `uid`; pods of others are left out whatever their labels (B31)."""
    pods = cache.objects(POD.name, key)
    children = [parse_child(kind, body, uid) for kind in CHILD_KINDS for body in cache.objects(kind, key)]
    gateway = next((child for child in children if child.kind == "Deployment" and child.owned), None)
    gateway_pods = [] if gateway is None else pods_of_gateway(pods, gateway.name)
    return Fleet(
        pods=tuple(parse_pod(body) for body in pods if is_controlled_by(body["metadata"], uid)),
        children=tuple(children),
        gateway=None if gateway is None else parse_gateway(gateway.body, gateway_pods),
        gateway_problem=None if gateway is None else gateway_problem(gateway.body, gateway_pods),
        ready_gateway=ready_pod(gateway_pods),
    )
