"""The targets that a request has to meet."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets in seconds, and the share of requests (0 to 1) that must meet all of them.

    `ttft` counts from arrival to the first token, `tpot` is (finish - first token) / (output tokens - 1), `gap` is the
    longest wait between two tokens of a request. A request with one output token has neither TPOT nor gap.
    """

    ttft: float
    tpot: float
    attainment: float = 0.9
    gap: float | None = None
