"""Laws that no engine can have: found here, refused or used all the same by others."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from itertools import pairwise
from typing import Final

from distserve_operator.placement.latency.fit_error import decode_errors, mixed_errors, prefill_errors
from distserve_operator.placement.latency.law import DecodePlane, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import Points
from distserve_operator.placement.latency.prediction import decode_seconds, prefill_seconds
from distserve_operator.placement.latency.problem import Problem
from distserve_operator.placement.latency.profile import Profile

_IN_DOCUMENT: Final = {
    "fixed": "fixed",
    "per_token": "perToken",
    "per_square": "perSquaredToken",
    "per_context": "perContextToken",
    "per_request": "perRequest",
}
_MEASURE: Final = "measure again, or allow a poor fit"
# a measured step may be that much shorter than one with less work: noise
_NOISE: Final = 0.2
_MEAN_ERROR: Final = 0.2
# twice the devices may be that much faster than twice as fast: caches, and noise
_BEYOND_IDEAL: Final = 1.25
# work at which degrees of tensor parallelism are compared: a long prompt, and a full batch
_PROMPT: Final = 2048
_BATCH: Final = 32
_CONTEXT: Final = 32 * 1024


def poor_fits(profile: Profile) -> list[Problem]:
    """Everything that speaks against the profile's laws; paths are those of its document."""
    problems = (
        [] if profile.poor_fit is None else [Problem("poorFit", profile.poor_fit, "is what its author says", _MEASURE)]
    )
    for place, (tp, law) in enumerate(profile.laws.items()):
        path = f"laws[{place}]"
        problems += _negative(path, law)
        if tp in profile.points:
            problems += _shrinking(path, profile.points[tp])
            problems += _far_off(path, law, profile.overlap, profile.points[tp])
    return [*problems, *_speed_ups(profile)]


def _negative(path: str, law: StepLaw) -> Iterable[Problem]:
    """Coefficients below zero: more work would take less time, or little work none."""
    for phase, place, plane in _planes(law):
        for field in fields(plane):
            value = getattr(plane, field.name)
            if value < 0:
                where = f"{path}.{phase}[{place}].{_IN_DOCUMENT[field.name]}Milliseconds"
                yield Problem(where, f"{1000 * value:g}", "is negative: steps would shrink with work", _MEASURE)


def _planes(law: StepLaw) -> Iterable[tuple[str, int, PrefillPlane | DecodePlane]]:
    for place, plane in enumerate(law.prefill):
        yield "prefill", place, plane
    for place, other in enumerate(law.decode):
        yield "decode", place, other


def without_negatives(law: StepLaw) -> StepLaw:
    """The law with 0 for what is negative, for those who allow a poor fit: the simulator's steps must not shrink."""
    return StepLaw(
        prefill=tuple(PrefillPlane(*(max(0.0, value) for value in astuple(plane))) for plane in law.prefill),
        decode=tuple(DecodePlane(*(max(0.0, value) for value in astuple(plane))) for plane in law.decode),
        host=law.host,
    )


def _shrinking(path: str, points: Points) -> Iterable[Problem]:
    """Measured steps that are shorter than one with less work, by more than noise."""
    yield from _shorter(f"{path}.points.prefill", [((one.tokens, one.squares), one.seconds) for one in points.prefill])
    yield from _shorter(f"{path}.points.decode", [((one.context, one.batch), one.seconds) for one in points.decode])


def _shorter(path: str, steps: Sequence[tuple[tuple[int, int], float]]) -> Iterable[Problem]:
    for place, (work, seconds) in enumerate(steps):
        longer = max((other for less, other in steps if less[0] <= work[0] and less[1] <= work[1]), default=seconds)
        if seconds < (1 - _NOISE) * longer:
            reason = f"is shorter than the {1000 * longer:g} of a step with less work"
            yield Problem(f"{path}[{place}].milliseconds", f"{1000 * seconds:g}", reason, _MEASURE)


def _far_off(path: str, law: StepLaw, overlap: float, points: Points) -> Iterable[Problem]:
    """Points that the law misses on average."""
    for phase, errors in (
        ("prefill", prefill_errors(law, points.prefill)),
        ("decode", decode_errors(law, points.decode)),
        ("points.mixed", mixed_errors(law, overlap, points.mixed)),
    ):
        mean = sum(abs(error) for error in errors) / max(1, len(errors))
        if mean > _MEAN_ERROR:
            reason = f"is the mean error against its points, above {_MEAN_ERROR:.0%}"
            yield Problem(f"{path}.{phase}", f"{mean:.0%}", reason, _MEASURE)


def _speed_ups(profile: Profile) -> Iterable[Problem]:
    """More devices that are faster than they can be: the law of either degree is wrong."""
    degrees = sorted(profile.laws)
    phases: list[tuple[str, Callable[[StepLaw], float]]] = [
        ("prefill", lambda law: prefill_seconds(law.prefill, _PROMPT, _PROMPT**2)),
        ("decode", lambda law: decode_seconds(law.decode, _CONTEXT, _BATCH)),
    ]
    for few, many in pairwise(degrees):
        for phase, seconds in phases:
            ideal = seconds(profile.laws[few]) * few / many
            if seconds(profile.laws[many]) * _BEYOND_IDEAL < ideal:
                place = list(profile.laws).index(many)
                value = f"{1000 * seconds(profile.laws[many]):.3g} ms for a usual {phase} step"
                reason = (
                    f"is less than {many} devices can take if {few} take {1000 * seconds(profile.laws[few]):.3g} ms"
                )
                yield Problem(f"laws[{place}].{phase}", value, reason, _MEASURE)
