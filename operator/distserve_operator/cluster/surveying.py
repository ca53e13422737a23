"""Asks the API server which devices there are, and which are free: less what pods of others hold there.

Asked once for each shape rather than watched: the nodes and pods of a whole cluster are many and change all the time.
"""

from decimal import Decimal
from typing import Final

from distserve_operator.api.deployment import Cluster, Wanted
from distserve_operator.api.devices import GPU_PRODUCTS
from distserve_operator.cluster.errors import ApiRefusedError
from distserve_operator.cluster.kinds import NODES_PATH, POD
from distserve_operator.cluster.requesting import Api
from distserve_operator.manifests.devices import PRODUCT_LABEL, requests_per_device
from distserve_operator.observed.metadata import is_controlled_by
from distserve_operator.observed.nodes import Survey, devices_of, requests_of, survey_of

_PAGE: Final = 100  # small, so that no page keeps the event loop for long
_RUNNING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_FORBIDDEN: Final = 403
_USUAL_NODE: Final = 8  # devices


async def survey(api: Api, wanted: Wanted) -> Survey:
    """Free devices for a deployment, its own workers counted as free.

    Without the rights to look, as many as it may use at most. Raises `ApiRefusedError` and `ApiUnreachableError`.
    """
    cluster = wanted.cluster
    asked = {name: Decimal(amount) for name, amount in requests_per_device(cluster).items()} | {"pods": Decimal(1)}
    try:
        nodes = [node async for node in api.items(NODES_PATH, _node_query(cluster), _PAGE)]
        taken: dict[str, dict[str, Decimal]] = {node["metadata"]["name"]: {} for node in nodes}
        async for pod in api.items(POD.path(None), {"fieldSelector": _RUNNING}, _PAGE):
            held = taken.get(pod["spec"]["nodeName"])
            if held is not None and not is_controlled_by(pod["metadata"], wanted.uid):
                for name, amount in requests_of(pod, tuple(asked)).items():
                    held[name] = held.get(name, Decimal(0)) + amount
    except ApiRefusedError as error:
        if error.status != _FORBIDDEN:
            raise
        return _assumed(cluster)
    return survey_of(nodes, taken, asked, cluster.resource_name, cluster.max_devices)


async def largest_node(api: Api, wanted: Wanted) -> int | None:
    """Devices of the node that has most, whoever holds them; None: no node has any, or nodes may not be read.

    Raises `ApiRefusedError` and `ApiUnreachableError`.
    """
    cluster = wanted.cluster
    asked = {name: Decimal(amount) for name, amount in requests_per_device(cluster).items()}
    try:
        sizes = [devices_of(node, {}, asked) async for node in api.items(NODES_PATH, _node_query(cluster), _PAGE)]
    except ApiRefusedError as error:
        if error.status != _FORBIDDEN:
            raise
        return None
    return max(sizes, default=0) or None


def _assumed(cluster: Cluster) -> Survey:
    whole, rest = divmod(cluster.max_devices, _USUAL_NODE)
    return Survey((_USUAL_NODE,) * whole + ((rest,) if rest else ()), assumed=True)


def _node_query(cluster: Cluster) -> dict[str, str]:
    products = GPU_PRODUCTS.get(cluster.device_type)
    return {} if products is None else {"labelSelector": f"{PRODUCT_LABEL} in ({','.join(products)})"}
