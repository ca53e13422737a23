"""Laws out of measured steps."""

from distserve_operator.placement.latency.law import DecodePlane, HostCost, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import Points
from distserve_operator.placement.latency.planes import fit_planes


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
