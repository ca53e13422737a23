"""What a placement of type Auto is searched for: latency targets and load."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """`spec.slo`."""

    ttft_milliseconds: int
    tpot_milliseconds: int
    max_gap_milliseconds: int | None
    attainment_percent: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Lengths of prompts or of outputs; `variation_percent` is 0 when all are equal."""

    mean: int
    variation_percent: int


@dataclass(frozen=True, slots=True)
class Workload:
    """`spec.workload`; without a rate the best goodput per device is searched."""

    requests_per_second: float | None
    input_tokens: Tokens
    output_tokens: Tokens


@dataclass(frozen=True, slots=True)
class Targets:
    """What stands in the place of a shape."""

    slo: Slo
    workload: Workload
