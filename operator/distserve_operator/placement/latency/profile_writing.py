"""A profile as a document, in milliseconds. Numbers have twelve digits, more than any measurement."""

from typing import Any

import yaml

from distserve_operator.placement.latency.fit_error import decode_errors, mixed_errors, prefill_errors
from distserve_operator.placement.latency.law import EngineRules, HostCost, StepLaw
from distserve_operator.placement.latency.measurement import Points
from distserve_operator.placement.latency.profile import API_VERSION, KIND, Profile


def write_profile(profile: Profile) -> str:
    """YAML that `read_profile` reads back."""
    return yaml.safe_dump(_document(profile), sort_keys=False, allow_unicode=True, width=120)


def write_config_map(profile: Profile, name: str, namespace: str | None = None) -> str:
    """YAML of a ConfigMap that holds the profile; `namespace` None: wherever it is applied."""
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return yaml.dump(body | {"data": {"profile.yaml": _Block(write_profile(profile))}}, Dumper=_Dumper, sort_keys=False)


class _Block(str):
    """A text that is written line by line, for people to read."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Knows `_Block`."""


_Dumper.add_representer(_Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def _document(profile: Profile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "engine": profile.engine,
        "device": profile.device,
        "model": profile.model,
        "weightType": profile.weight_type,
        "origin": profile.origin,
    }
    if profile.poor_fit is not None:
        document["poorFit"] = profile.poor_fit
    document["rules"] = _rules(profile.rules)
    document["hopMilliseconds"] = _milliseconds(profile.hop)
    document["chunkOverlap"] = profile.overlap
    document["laws"] = [_law(tp, law, profile.overlap, profile.points.get(tp)) for tp, law in profile.laws.items()]
    return document


def _rules(rules: EngineRules) -> dict[str, Any]:
    tokens = {"prefillTokens": rules.prefill_tokens, "colocatedTokens": rules.colocated_tokens}
    return {name: count for name, count in tokens.items() if count is not None} | {
        "prefillRequests": rules.prefill_requests,
        "decodeRequests": rules.decode_requests,
        "spareBlocks": rules.spare_blocks,
        "blockingPulls": rules.blocking_pulls,
    }


def _law(tp: int, law: StepLaw, overlap: float, points: Points | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "tensorParallelism": tp,
        "host": _host(law.host),
        "prefill": [
            {
                "fixedMilliseconds": _milliseconds(plane.fixed),
                "perTokenMilliseconds": _milliseconds(plane.per_token),
                "perSquaredTokenMilliseconds": _milliseconds(plane.per_square),
            }
            for plane in law.prefill
        ],
        "decode": [
            {
                "fixedMilliseconds": _milliseconds(plane.fixed),
                "perContextTokenMilliseconds": _milliseconds(plane.per_context),
                "perRequestMilliseconds": _milliseconds(plane.per_request),
            }
            for plane in law.decode
        ],
    }
    return entry if points is None else entry | {"points": _points(law, overlap, points)}


def _host(host: HostCost) -> dict[str, float]:
    return {
        "perBatchMilliseconds": _milliseconds(host.per_batch),
        "perStepMilliseconds": _milliseconds(host.per_step),
        "perStepRequestMilliseconds": _milliseconds(host.per_step_request),
        "perRequestMilliseconds": _milliseconds(host.per_request),
        "perPromptTokenMilliseconds": _milliseconds(host.per_prompt_token),
        "clientMilliseconds": _milliseconds(host.client),
    }


def _points(law: StepLaw, overlap: float, points: Points) -> dict[str, list[dict[str, float]]]:
    phases = {
        "prefill": [
            {
                "tokens": point.tokens,
                "squaredTokens": point.squares,
                "milliseconds": _milliseconds(point.seconds),
                "fitError": _share(error),
            }
            for point, error in zip(points.prefill, prefill_errors(law, points.prefill), strict=True)
        ],
        "decode": [
            {
                "contextTokens": point.context,
                "requests": point.batch,
                "milliseconds": _milliseconds(point.seconds),
                "fitError": _share(error),
            }
            for point, error in zip(points.decode, decode_errors(law, points.decode), strict=True)
        ],
    }
    mixed = [
        ({"promptTokensBefore": point.before} if point.before else {})
        | {
            "promptTokens": point.chunk,
            "aloneMilliseconds": _milliseconds(point.alone),
            "milliseconds": _milliseconds(point.seconds),
            "fitError": _share(error),
        }
        for point, error in zip(points.mixed, mixed_errors(law, overlap, points.mixed), strict=True)
    ]
    return phases | ({"mixed": mixed} if mixed else {})


def _milliseconds(seconds: float) -> float:
    return float(f"{1000 * seconds:.12g}")


def _share(error: float) -> float:
    """Few digits, for people: it is computed anew on reading."""
    return float(f"{error:.3g}") + 0.0  # no -0.0
