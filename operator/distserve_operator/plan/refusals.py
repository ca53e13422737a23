"""What stands against a spec before anything is searched or made: small checks that need neither numbers nor time."""

from collections.abc import Callable
from typing import Final

from distserve_operator.api.capability import WORKERS, WORKERS_TEXT
from distserve_operator.api.deployment import Affinity, Cluster, Mode, Wanted
from distserve_operator.api.shape import Placement
from distserve_operator.observed.search import NoNode, Unanswerable
from distserve_operator.placement.catalogue.errors import UnknownModelError
from distserve_operator.placement.catalogue.uris import model_of_uri


def refusal(wanted: Wanted) -> Unanswerable | None:
    """The first obstacle; None: the search may begin."""
    return next((found for check in _CHECKS if (found := check(wanted)) is not None), None)


def too_large(cluster: Cluster, placement: Placement, largest: int) -> NoNode | None:
    """Instances that no node is large enough for: `largest` is the most devices that any has."""
    found = [
        f"an instance of placement.{role} takes {shape.devices_per_instance} devices (tp {shape.tp} x pp {shape.pp})"
        for role, shape in placement.shapes.items()
        if shape.devices_per_instance > largest
    ]
    text = f"{', '.join(found)}, but no {cluster.device_type} node has more than {largest}, and {WORKERS_TEXT}"
    return NoNode(text) if found and not WORKERS.across_nodes else None


def _unknown_model(wanted: Wanted) -> Unanswerable | None:
    try:
        model_of_uri(wanted.model.uri)
    except UnknownModelError as error:
        text = f"model.uri: {error} With placement.type Manual, and a shape of your own, any model can be served."
        return Unanswerable("UnknownModel", text)
    return None


def _pairs(wanted: Wanted) -> Unanswerable | None:
    if wanted.mode is Mode.PLAN or wanted.cluster.affinity is not Affinity.LOW or WORKERS.inside_nodes:
        return None
    text = f"cluster.affinity is Low, but {WORKERS_TEXT}: choose Auto or High, or mode Plan to only see the answer"
    return Unanswerable("UnsupportedShape", text)


_CHECKS: Final[tuple[Callable[[Wanted], Unanswerable | None], ...]] = (_unknown_model, _pairs)
