"""Free devices of the nodes that exist: what a node can take of a deployment's pods beside the pods of others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any, Final

from distserve_operator.api.quantities import parse_quantity

Body = Mapping[str, Any]
Amounts = Mapping[str, Decimal]
_REPELS: Final = frozenset({"NoSchedule", "NoExecute"})
_ALWAYS: Final = "Always"  # restart policy of an init container that goes on running beside the others


@dataclass(frozen=True, slots=True)
class Survey:
    """Free devices of each node that has any, most first. `assumed`: nodes cannot be read, so many may be there."""

    free: tuple[int, ...]
    assumed: bool = False

    @property
    def devices(self) -> int:
        """Free devices of all nodes."""
        return sum(self.free)

    def __str__(self) -> str:
        groups = " + ".join(f"{len(list(same))}x{devices}" for devices, same in groupby(self.free)) or "none"
        return f"{groups} (assumed)" if self.assumed else groups


def survey_of(
    nodes: Sequence[Body], taken: Mapping[str, Amounts], asked: Amounts, tolerated: str | None, most: int
) -> Survey:
    """Free devices, of each node up to `most`.

    `asked` is what the pod of one device requests, `taken` what other pods do, by node, `tolerated` the key of a taint.
    """
    admitting = [node for node in nodes if _admits(node, tolerated)]
    found = [devices_of(node, taken.get(node["metadata"]["name"], {}), asked) for node in admitting]
    return Survey(tuple(sorted((min(devices, most) for devices in found if devices > 0), reverse=True)))


def devices_of(node: Body, taken: Amounts, asked: Amounts) -> int:
    """Pods of one device each that a node has room for."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return min(
        int((parse_quantity(allocatable.get(name, "0")) - taken.get(name, Decimal(0))) // amount)
        for name, amount in asked.items()
    )


def requests_of(pod: Body, names: Sequence[str]) -> dict[str, Decimal]:
    """What the scheduler counts for a pod."""
    return {name: Decimal(1) if name == "pods" else _request(pod["spec"], name) for name in names}


def _admits(node: Body, tolerated: str | None) -> bool:
    """Whether our pods may be scheduled there; a node that is not ready has a taint that says so."""
    spec = node.get("spec") or {}
    repelling = [taint for taint in spec.get("taints") or () if taint.get("effect") in _REPELS]
    return not spec.get("unschedulable") and all(
        taint["key"] == tolerated and taint["effect"] == "NoSchedule" for taint in repelling
    )


def _request(spec: Body, name: str) -> Decimal:
    """Containers together, or one that prepares for them if that is more; the pod's own request goes before both."""
    whole = _amount(spec.get("resources"), name)
    overhead = _amount({"requests": spec.get("overhead") or {}}, name) or Decimal(0)
    if whole is not None:
        return overhead + whole
    beside = most = Decimal(0)
    for container in spec.get("initContainers") or ():
        most = max(most, beside + _of(container, name))
        if container.get("restartPolicy") == _ALWAYS:
            beside += _of(container, name)
    return overhead + max(most, sum((_of(container, name) for container in spec["containers"]), beside))


def _of(container: Body, name: str) -> Decimal:
    return _amount(container.get("resources"), name) or Decimal(0)


def _amount(resources: Body | None, name: str) -> Decimal | None:
    text = ((resources or {}).get("requests") or {}).get(name)
    return None if text is None else parse_quantity(text)
