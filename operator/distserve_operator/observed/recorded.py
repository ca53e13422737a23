"""What the status of a DistServeDeployment remembers: the last answer of the search, and the shape that is kept up.

It is read back after a restart, so it is the only memory of a plan.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from distserve_operator.api.shape import Colocated, Disaggregated, Placement, Shape

Status = Mapping[str, Any]
_GROUP: Final = re.compile(r"(\d+)x(\d+)")  # as `nodes.Survey` writes it


class PlanOutcome(StrEnum):
    """`status.plan.outcome`; all but the first are reasons of PlacementReady."""

    FEASIBLE = "Feasible"
    SLO_UNREACHABLE = "SLOUnreachable"
    RATE_UNREACHABLE = "RateUnreachable"
    DOES_NOT_FIT = "DoesNotFit"
    NOT_ENOUGH_DEVICES = "NotEnoughDevices"
    WORKLOAD_INVALID = "WorkloadInvalid"


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """An answer of the search. Without a shape `shape` is empty; `placement` is None also when its nodes are shared."""

    outcome: PlanOutcome
    shape: str
    devices: int
    placement: Placement | None
    goodput: str
    goodput_per_device: str
    attainment_percent: int | None
    binding: str
    reasons: tuple[str, ...]
    inventory: str
    planner: str
    inputs_digest: str

    @property
    def feasible(self) -> bool:
        """Whether the targets are held."""
        return self.outcome is PlanOutcome.FEASIBLE

    @property
    def free_devices(self) -> int:
        """Devices that the search could choose from, before `maxDevices`."""
        return sum(int(nodes) * int(devices) for nodes, devices in _GROUP.findall(self.inventory))

    def bound_by_spec(self, max_devices: int) -> bool:
        """Whether more free devices would change nothing."""
        return self.outcome is PlanOutcome.WORKLOAD_INVALID or self.free_devices >= max_devices


@dataclass(frozen=True, slots=True)
class Serving:
    """The shape that the cluster was last brought to, and a digest of the model and devices that it was for."""

    placement: Placement
    fleet_digest: str


def recorded_plan(status: Status | None) -> RecordedPlan | None:
    """The answer in a status; None when there is none or it is not understood: then it is searched again."""
    plan = (status or {}).get("plan") or {}
    try:
        return RecordedPlan(
            outcome=PlanOutcome(plan["outcome"]),
            shape=plan.get("shape", ""),
            devices=plan.get("devices", 0),
            placement=_placement(plan),
            goodput=plan.get("goodput", ""),
            goodput_per_device=plan.get("goodputPerDevice", ""),
            attainment_percent=plan.get("attainmentPercent"),
            binding=plan.get("binding", ""),
            reasons=tuple(plan.get("reasons") or ()),
            inventory=plan["inventory"],
            planner=plan["planner"],
            inputs_digest=plan["inputsDigest"],
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def recorded_serving(status: Status | None) -> Serving | None:
    """The shape in a status; None when nothing has been made yet."""
    serving = (status or {}).get("serving") or {}
    try:
        placement = _placement(serving)
        return None if placement is None else Serving(placement, serving["fleetDigest"])
    except (AttributeError, KeyError, TypeError):
        return None


def serving_status(placement: Placement, fleet_digest: str) -> dict[str, Any]:
    """What `recorded_serving` reads."""
    shapes = {str(role): _shape_status(shape) for role, shape in placement.shapes.items()}
    return {**shapes, "fleetDigest": fleet_digest}


def _placement(fields: Status) -> Placement | None:
    """None without shapes, and when prefill and decode share nodes (`segments`), which takes pods of both."""
    match fields:
        case {"segments": _}:
            return None
        case {"colocated": both}:
            return Colocated(_shape(both))
        case {"prefill": prefill, "decode": decode}:
            return Disaggregated(_shape(prefill), _shape(decode))
    return None


def _shape(fields: Status) -> Shape:
    return Shape(
        fields["tp"], fields["pp"], fields["replicas"], fields.get("maxBatchTokens"), fields.get("chunkTokens")
    )


def _shape_status(shape: Shape) -> dict[str, int]:
    found = {
        "tp": shape.tp,
        "pp": shape.pp,
        "replicas": shape.replicas,
        "maxBatchTokens": shape.max_batch_tokens,
        "chunkTokens": shape.chunk_tokens,
    }
    return {name: number for name, number in found.items() if number is not None}
