"""A profile: the laws of one engine with one model on one device, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from distserve_operator.placement.latency.law import EngineRules, StepLaw
from distserve_operator.placement.latency.measurement import Points
from distserve_operator.placement.model import WeightType

API_VERSION: Final = "distserve.io/v1alpha1"
KIND: Final = "LatencyProfile"


@dataclass(frozen=True, slots=True)
class Profile:
    """Laws and points by tensor parallelism; a profile says nothing about degrees that it does not hold."""

    engine: str
    device: str
    model: str
    weight_type: WeightType
    origin: str  # for people: who measured
    laws: Mapping[int, StepLaw]
    rules: EngineRules = field(default_factory=EngineRules)
    hop: float = 0.0  # seconds
    overlap: float = 0.0  # of chunks, as in `LatencyModel`
    poor_fit: str | None = None  # why its author does not trust it
    points: Mapping[int, Points] = field(default_factory=dict)
