"""Everything a search depends on. Equal questions have equal answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from distserve_operator.placement.device import Device, Inventory
from distserve_operator.placement.latency.law import LatencyModel
from distserve_operator.placement.model import ModelShape
from distserve_operator.placement.slo import Slo
from distserve_operator.placement.workload.workload import Workload

Kind = Literal["disaggregated", "colocated"]


class Affinity(StrEnum):
    """Where the KV travels: anywhere (High: Algorithm 1), inside nodes (Low: Algorithm 2), or as the links allow."""

    HIGH = "High"
    LOW = "Low"
    AUTO = "Auto"


@dataclass(frozen=True, slots=True)
class Steady:
    """Goodput in steady state: warm-up dropped, joint attainment, interval over seeds."""

    requests: int = 2000  # of a screening run


@dataclass(frozen=True, slots=True)
class FiniteWindow:
    """The published rule: so many requests from an empty system, a percentile of TTFT and one of TPOT apart."""

    requests: int = 300


@dataclass(frozen=True, slots=True)
class Question:
    """What to place, on what, for which targets and load. `rate`: requests per second; None: best per device."""

    model: ModelShape
    device: Device
    inventory: Inventory
    latency: LatencyModel
    workload: Workload
    slo: Slo
    rate: float | None = None
    affinity: Affinity = Affinity.AUTO
    network_bytes_per_second: float | None = None  # between two nodes; None: the device's default
    only: Kind | None = None
    rule: Literal["joint", "paper"] = "joint"
    deepest: int | None = None  # stages that an instance may have at most; None: as many as it has layers
    window: Steady | FiniteWindow = Steady()
    seed: int = 0
    listed: int | None = None  # candidates to measure in all, if there are so many; None: those that tell why
