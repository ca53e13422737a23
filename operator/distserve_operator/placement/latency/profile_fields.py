"""The fields of a profile's document, in seconds."""

from typing import cast, get_args

from distserve_operator.placement.latency.fields import Fields
from distserve_operator.placement.latency.law import DecodePlane, EngineRules, HostCost, PrefillPlane, StepLaw
from distserve_operator.placement.latency.measurement import DecodePoint, MixedPoint, Points, PrefillPoint
from distserve_operator.placement.latency.profile import API_VERSION, KIND, Profile
from distserve_operator.placement.model import WeightType


def profile_of(fields: Fields) -> Profile:
    """The profile that a document's fields say; what is wrong with them is noted in `fields`."""
    fields.text("apiVersion", [API_VERSION])
    fields.text("kind", [KIND])
    weight_type = cast("WeightType", fields.text("weightType", get_args(WeightType)))
    laws: dict[int, StepLaw] = {}
    points: dict[int, Points] = {}
    for entry in fields.each("laws"):
        tp = entry.count("tensorParallelism")
        if tp in laws:
            entry.complain("tensorParallelism", tp, "stands here twice", "keep one of the laws")
        laws[tp] = _law(entry)
        if entry.has("points"):
            points[tp] = _points(entry.part("points"))
        entry.finish()
    profile = Profile(
        engine=fields.text("engine"),
        device=fields.text("device"),
        model=fields.text("model"),
        weight_type=weight_type,
        origin=fields.text("origin"),
        laws=laws,
        rules=_rules(fields.part("rules")),
        hop=fields.duration("hop", 0.0),
        overlap=fields.amount("chunkOverlap", 0.0, most=1.0),
        poor_fit=fields.optional_text("poorFit"),
        points=points,
    )
    fields.finish()
    return profile


def _rules(fields: Fields) -> EngineRules:
    usual = EngineRules()
    rules = EngineRules(
        prefill_tokens=fields.optional_count("prefillTokens"),
        colocated_tokens=fields.optional_count("colocatedTokens"),
        prefill_requests=fields.count("prefillRequests", usual.prefill_requests),
        decode_requests=fields.count("decodeRequests", usual.decode_requests),
        spare_blocks=fields.amount("spareBlocks", usual.spare_blocks, most=1.0),
        blocking_pulls=fields.flag("blockingPulls", usual.blocking_pulls),
    )
    fields.finish()
    return rules


def _law(fields: Fields) -> StepLaw:
    return StepLaw(
        prefill=tuple(_prefill_plane(entry) for entry in fields.each("prefill")),
        decode=tuple(_decode_plane(entry) for entry in fields.each("decode")),
        host=_host(fields.part("host")),
    )


def _prefill_plane(fields: Fields) -> PrefillPlane:
    plane = PrefillPlane(fields.seconds("fixed"), fields.seconds("perToken"), fields.seconds("perSquaredToken"))
    fields.finish()
    return plane


def _decode_plane(fields: Fields) -> DecodePlane:
    plane = DecodePlane(fields.seconds("fixed"), fields.seconds("perContextToken"), fields.seconds("perRequest"))
    fields.finish()
    return plane


def _host(fields: Fields) -> HostCost:
    host = HostCost(
        per_batch=fields.duration("perBatch", 0.0),
        per_step=fields.duration("perStep", 0.0),
        per_step_request=fields.duration("perStepRequest", 0.0),
        per_request=fields.duration("perRequest", 0.0),
        per_prompt_token=fields.duration("perPromptToken", 0.0),
        client=fields.duration("client", 0.0),
    )
    fields.finish()
    return host


def _points(fields: Fields) -> Points:
    points = Points(
        tuple(_prefill_point(entry) for entry in fields.each("prefill", needed=False)),
        tuple(_decode_point(entry) for entry in fields.each("decode", needed=False)),
        tuple(_mixed_point(entry) for entry in fields.each("mixed", needed=False)),
    )
    fields.finish()
    return points


def _prefill_point(fields: Fields) -> PrefillPoint:
    point = PrefillPoint(fields.count("tokens"), fields.count("squaredTokens"), _measured(fields))
    fields.finish()
    return point


def _decode_point(fields: Fields) -> DecodePoint:
    point = DecodePoint(fields.count("contextTokens"), fields.count("requests"), _measured(fields))
    fields.finish()
    return point


def _mixed_point(fields: Fields) -> MixedPoint:
    before, chunk = fields.optional_count("promptTokensBefore") or 0, fields.count("promptTokens")
    point = MixedPoint(before, chunk, _time(fields, "aloneMilliseconds"), _measured(fields))
    fields.finish()
    return point


def _measured(fields: Fields) -> float:
    """Seconds of a point. Its error is computed anew whenever it is needed."""
    fields.skip("fitError")
    return _time(fields, "milliseconds")


def _time(fields: Fields, key: str) -> float:
    """Seconds that a step took."""
    seconds = fields.number(key) / 1000
    if seconds <= 0:
        fields.complain(key, seconds * 1000, "is no time that a step can take", "measure again")
    return seconds
