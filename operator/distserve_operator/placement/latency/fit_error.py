"""How far a law is from the steps it was fitted to."""

from collections.abc import Sequence

from distserve_operator.placement.latency.law import StepLaw
from distserve_operator.placement.latency.measurement import DecodePoint, MixedPoint, PrefillPoint
from distserve_operator.placement.latency.prediction import chunk_seconds, decode_seconds, prefill_seconds


def prefill_errors(law: StepLaw, points: Sequence[PrefillPoint]) -> list[float]:
    """Relative error of each point: 0.1 says that the law is 10 % above the measurement."""
    return [prefill_seconds(law.prefill, one.tokens, one.squares) / one.seconds - 1 for one in points]


def decode_errors(law: StepLaw, points: Sequence[DecodePoint]) -> list[float]:
    """Relative error of each point: 0.1 says that the law is 10 % above the measurement."""
    return [decode_seconds(law.decode, one.context, one.batch) / one.seconds - 1 for one in points]


def mixed_errors(law: StepLaw, overlap: float, points: Sequence[MixedPoint]) -> list[float]:
    """Relative error of each point, of the whole step."""
    return [(one.alone + (1 - overlap) * chunk_seconds(law, one.before, one.chunk)) / one.seconds - 1 for one in points]
