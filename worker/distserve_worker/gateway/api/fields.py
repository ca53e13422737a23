"""Which fields of the OpenAI API are taken, ignored because they change nothing here, or refused by name.

A field that would change the answer is never ignored: it is refused unless its value means "off".
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from distserve_worker.gateway.errors import invalid, shown, unsupported

HARMLESS: Final = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# Values that ask for nothing; null does so for every field.
OFF: Final[Mapping[str, tuple[Any, ...]]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}

MESSAGE_OFF: Final[Mapping[str, tuple[Any, ...]]] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "reasoning": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}


def taken(
    fields: Mapping[str, Any], known: Collection[str], off: Mapping[str, tuple[Any, ...]], prefix: str = ""
) -> dict[str, Any]:
    """The fields in `known`. Raises `ApiError` naming the first field that is unsupported or unknown."""
    for name, value in fields.items():
        if name not in known and not (name in HARMLESS and not prefix):
            _require_off(name, value, off, prefix)
    return {name: value for name, value in fields.items() if name in known}


def _require_off(name: str, value: object, off: Mapping[str, tuple[Any, ...]], prefix: str) -> None:
    param = f"{prefix}{shown(name)}"
    if name not in off:
        raise invalid(f"Unrecognized request argument supplied: {param}", param, "unknown_parameter")
    if value is not None and not any(_same(value, allowed) for allowed in off[name]):
        raise unsupported(param)


def _same(value: object, allowed: object) -> bool:
    # JSON's true is not 1 and false is not 0
    return value == allowed and isinstance(value, bool) == isinstance(allowed, bool)
