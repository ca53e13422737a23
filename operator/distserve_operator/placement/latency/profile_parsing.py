"""A profile out of a document: YAML or JSON, alone or as the only entry of a ConfigMap."""

import json
from collections.abc import Iterable
from dataclasses import astuple

import yaml

from distserve_operator.placement.latency.fields import Fields
from distserve_operator.placement.latency.problem import MalformedProfileError, PoorFitError, Problem
from distserve_operator.placement.latency.profile import Profile
from distserve_operator.placement.latency.profile_fields import profile_of
from distserve_operator.placement.latency.soundness import poor_fits
from distserve_operator.placement.legible import legible


def read_profile(text: str, allow_poor_fit: bool = False) -> Profile:
    """The profile in `text`. Raises `MalformedProfileError`; raises `PoorFitError`, too, unless that is allowed."""
    profile = parse_profile(text)
    problems = poor_fits(profile)
    if problems and not allow_poor_fit:
        raise PoorFitError(problems)
    return profile


def parse_profile(text: str) -> Profile:
    """The profile in `text`, however badly its laws fit. Raises `MalformedProfileError`."""
    problems: list[Problem] = []
    profile = profile_of(Fields(_unwrapped(_content(text)), "", problems))
    problems = problems or list(_timeless(profile))
    if problems:
        raise MalformedProfileError(problems)
    return profile


def _timeless(profile: Profile) -> Iterable[Problem]:
    """Laws by which steps take no time. That is no question of fit: nothing can be simulated with them."""
    for place, law in enumerate(profile.laws.values()):
        for phase, planes in (("prefill", law.prefill), ("decode", law.decode)):
            if all(value <= 0 for plane in planes for value in astuple(plane)):
                yield Problem(f"laws[{place}].{phase}", "the law", "says that steps take no time", "measure again")
        if law.host.per_step <= 0 and all(plane.fixed <= 0 for plane in law.decode):
            yield Problem(
                f"laws[{place}].decode",
                "0 in every fixedMilliseconds, and in perStepMilliseconds of the host,",
                "says that a step of little work takes no time",
                "measure again",
            )


def _content(text: str) -> object:
    try:
        with legible():
            return json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except ValueError as error:
        raise MalformedProfileError(
            [Problem("", "the document", f"is no YAML and no JSON: {error}", "write one")]
        ) from error


def _unwrapped(content: object) -> object:
    """What a ConfigMap holds, or the document itself."""
    if not isinstance(content, dict) or content.get("kind") != "ConfigMap":
        return content
    data = content.get("data")
    entries = list(data.values()) if isinstance(data, dict) else []
    if len(entries) != 1 or not isinstance(entries[0], str):
        problem = Problem(
            "data", f"{len(entries)} entries", "cannot be one profile", "write one entry with a profile's text"
        )
        raise MalformedProfileError([problem])
    return _content(entries[0])
