"""Which latencies to believe: a profile measured on the device, one that is shipped, or the roofline."""

from typing import Final

from distserve_operator.placement.catalogue.data import text_of
from distserve_operator.placement.catalogue.models import names_of
from distserve_operator.placement.device import Device
from distserve_operator.placement.latency.engines import ENGINE_RULES
from distserve_operator.placement.latency.law import LatencyModel
from distserve_operator.placement.latency.problem import PoorFitError, Problem, ProfileMismatchError
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.profile_parsing import parse_profile
from distserve_operator.placement.latency.roofline import roofline
from distserve_operator.placement.latency.soundness import poor_fits, without_negatives
from distserve_operator.placement.model import ModelShape, WeightType

# they take the same time
_HALVES: Final[frozenset[WeightType]] = frozenset({"FP16", "BF16"})


def latency_model(
    model: ModelShape,
    device: Device,
    engine: str = "distserve",
    profile: Profile | None = None,
    allow_poor_fit: bool = False,
) -> LatencyModel:
    """Laws of `engine` with `model` on `device`; `source` says where from, and why not from better.

    A `profile` that was measured goes before one that is shipped, and that before the roofline. A profile answers only
    for the tensor parallelism that it holds. Raises `ProfileMismatchError` and `PoorFitError` about `profile`, and
    ValueError about `engine`.
    """
    if engine not in ENGINE_RULES:
        raise ValueError(f"engine {engine!r} is not known; known are {', '.join(ENGINE_RULES)}")
    if profile is not None:
        _check_match(profile, model, device, engine)
        _check_fit(profile, allow_poor_fit)
        return _from_profile(profile, "measured profile")
    shipped = shipped_profile(model, device, engine)
    if shipped is None:
        why = f"there is no profile of {model.name} in {model.weight_type} for engine {engine}"
        return roofline(model, device, engine, why)
    try:
        _check_fit(shipped, allow_poor_fit)
    except PoorFitError as error:
        return roofline(
            model, device, engine, f"the shipped profile of {model.name} fits badly ({error.problems[0].value})"
        )
    return _from_profile(shipped, "shipped profile")


def shipped_profile(model: ModelShape, device: Device, engine: str) -> Profile | None:
    """The profile that comes with this package; None: there is none. Its fit is not checked."""
    texts = (text_of(f"profiles/{engine}-{device.name}-{name}.yaml".lower()) for name in names_of(model))
    text = next((one for one in texts if one is not None), None)
    profile = None if text is None else parse_profile(text)
    return profile if profile is not None and _same_weights(profile.weight_type, model.weight_type) else None


def _from_profile(profile: Profile, kind: str) -> LatencyModel:
    doubt = "; it fits badly, what is negative counts as 0" if poor_fits(profile) else ""
    return LatencyModel(
        laws={tp: without_negatives(law) for tp, law in profile.laws.items()},
        rules=profile.rules,
        hop=profile.hop,
        overlap=profile.overlap,
        source=f"{kind} of {profile.model} on {profile.device}, engine {profile.engine}: {profile.origin}{doubt}",
    )


def _check_fit(profile: Profile, allowed: bool) -> None:
    problems = poor_fits(profile)
    if problems and not allowed:
        raise PoorFitError(problems)


def _check_match(profile: Profile, model: ModelShape, device: Device, engine: str) -> None:
    """A folder may be called anything: its model is also known by the name of the one with the same numbers."""
    names = names_of(model)
    known = next((name for name in names if name.lower() == profile.model.lower()), model.name)
    asked = (
        ("engine", profile.engine, engine),
        ("device", profile.device, device.name),
        ("model", profile.model, known),
    )
    problems = [_mismatch(field, has, wants) for field, has, wants in asked if has.lower() != wants.lower()]
    if not _same_weights(profile.weight_type, model.weight_type):
        problems.append(_mismatch("weightType", profile.weight_type, model.weight_type))
    if problems:
        raise ProfileMismatchError(problems)


def _mismatch(field: str, has: str, wants: str) -> Problem:
    fix = "give its profile, or none"
    if field == "model":
        fix = f"{fix}; a profile of the same model under another name fits once its field model says {wants}"
    return Problem(field, has, f"is not {wants}, which the plan is for", fix)


def _same_weights(one: WeightType, other: WeightType) -> bool:
    return one == other or {one, other} <= _HALVES
