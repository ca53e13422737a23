"""The law of an engine's steps, one for each tensor parallelism (paper, appendix A; continuous in every argument)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefillPlane:
    """Kernel seconds of a prefill batch: `fixed + per_token * tokens + per_square * (sum of squared lengths)`."""

    fixed: float
    per_token: float
    per_square: float


@dataclass(frozen=True, slots=True)
class DecodePlane:
    """Kernel seconds of a decode step: `fixed + per_context * (sum of contexts in tokens) + per_request * batch`."""

    fixed: float
    per_context: float
    per_request: float


@dataclass(frozen=True, slots=True)
class HostCost:
    """Seconds in which no kernel runs: per prefill batch, per decode step and its requests, per request elsewhere."""

    per_batch: float = 0.0
    per_step: float = 0.0
    per_step_request: float = 0.0
    per_request: float = 0.0  # tokenizing, HTTP: part of TTFT, takes no device time
    per_prompt_token: float = 0.0  # the same for every token of the prompt
    client: float = 0.0  # on the client's side, per request


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Steps of one whole copy of a model at one tensor parallelism; the largest plane counts."""

    prefill: tuple[PrefillPlane, ...]
    decode: tuple[DecodePlane, ...]
    host: HostCost = HostCost()


@dataclass(frozen=True, slots=True)
class EngineRules:
    """Bounds of an engine's scheduler. `prefill_tokens` None: as many as saturate the device (L_m, paper 4.3)."""

    prefill_tokens: int | None = None
    colocated_tokens: int | None = None  # of a batch that requests wait for which decode; None: `prefill_tokens`
    prefill_requests: int = 128
    decode_requests: int = 1024
    spare_blocks: float = 0.0  # share of all blocks that an admission to decode leaves free
    blocking_pulls: bool = False  # the decode step waits for a pull


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Laws by tensor parallelism, for one model on one device. A pipeline stage takes 1/pp of a step plus `hop`."""

    laws: Mapping[int, StepLaw]
    rules: EngineRules
    hop: float  # seconds: activations to the next stage
    overlap: float  # share of a prefill chunk's own time that hides behind the decode step it rides on
    source: str  # for people: which profile, or the roofline and why
