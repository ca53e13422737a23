"""Laws out of measured steps."""

from collections.abc import Sequence

from distserve_operator.placement.latency.law import DecodePlane, HostCost, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import MixedPoint, Points
from distserve_operator.placement.latency.planes import fit_planes
from distserve_operator.placement.latency.prediction import chunk_seconds


def fit_law(points: Points, host: HostCost) -> StepLaw:
    """The law closest to `points` by relative error; `host` is measured apart. Raises ValueError naming the phase."""
    try:
        prefill = fit_planes(
            [(one.tokens, one.squares) for one in points.prefill], [one.seconds for one in points.prefill]
        )
    except ValueError as error:
        raise ValueError(f"prefill: {error}") from error
    try:
        decode = fit_planes([(one.context, one.batch) for one in points.decode], [one.seconds for one in points.decode])
    except ValueError as error:
        raise ValueError(f"decode: {error}") from error
    return StepLaw(
        tuple(PrefillPlane(*map(float, plane)) for plane in prefill),
        tuple(DecodePlane(*map(float, plane)) for plane in decode),
        host,
    )


def fit_overlap(law: StepLaw, points: Sequence[MixedPoint]) -> float:
    """Share of a chunk's own time that hides behind the decode step it rides on (see `LatencyModel`), from 0 to 1.

    The one closest to `points` by relative error of the whole step; 0 when there are none, or a chunk costs nothing.
    """
    shares = [(chunk_seconds(law, one.before, one.chunk) / one.seconds, one.alone / one.seconds) for one in points]
    squares = sum(chunk * chunk for chunk, _ in shares)
    if squares <= 0:
        return 0.0
    return min(1.0, max(0.0, 1 - sum(chunk * (1 - alone) for chunk, alone in shares) / squares))
