"""How far a law is from the steps it was fitted to."""

from collections.abc import Sequence

from distserve_operator.placement.latency.law import StepLaw
from distserve_operator.placement.latency.measurement import DecodePoint, PrefillPoint
from distserve_operator.placement.latency.prediction import decode_seconds, prefill_seconds


def prefill_errors(law: StepLaw, points: Sequence[PrefillPoint]) -> list[float]:
    """Relative error of each point: 0.1 says that the law is 10 % above the measurement."""
    return [prefill_seconds(law.prefill, one.tokens, one.squares) / one.seconds - 1 for one in points]


def decode_errors(law: StepLaw, points: Sequence[DecodePoint]) -> list[float]:
    """Relative error of each point: 0.1 says that the law is 10 % above the measurement."""
    return [decode_seconds(law.decode, one.context, one.batch) / one.seconds - 1 for one in points]
