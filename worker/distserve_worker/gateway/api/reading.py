"""Parses a request body and turns whatever is wrong with it into one OpenAI error that names the field."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from distserve_worker.gateway.api.bodies import (
    MAX_MESSAGES,
    MAX_PARTS,
    ChatBody,
    CompletionBody,
    GenerationBody,
    Message,
    StreamOptions,
    TextPart,
)
from distserve_worker.gateway.api.checked import BrokenRuleError
from distserve_worker.gateway.api.fields import MESSAGE_OFF, OFF, taken
from distserve_worker.gateway.errors import ApiError, invalid, shown, unsupported

Body = TypeVar("Body", bound=GenerationBody)

_STEPS = frozenset({*Message.model_fields, *TextPart.model_fields, *StreamOptions.model_fields})
_SHOWN_BITS = 64  # of an integer; longer ones are not worth reading, and the longest cannot be written


def read_chat(body: bytes) -> ChatBody:
    """Parse and check a chat body. Raises `ApiError` (400) naming the field."""
    fields = _fields(body, ChatBody)
    messages = fields.get("messages")
    if isinstance(messages, list):
        _check_count("messages", messages, MAX_MESSAGES)
        fields["messages"] = [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    return _validated(ChatBody, fields)


def read_completion(body: bytes) -> CompletionBody:
    """Parse and check a completions body. Raises `ApiError` (400) naming the field."""
    fields = _fields(body, CompletionBody)
    if "prompt" in fields:
        fields["prompt"] = _single_prompt(fields["prompt"])
    return _validated(CompletionBody, fields)


def _fields(body: bytes, kind: type[GenerationBody]) -> dict[str, Any]:
    fields = taken(_object(body), kind.model_fields, OFF)
    options = fields.get("stream_options")
    if isinstance(options, Mapping):
        fields["stream_options"] = taken(options, StreamOptions.model_fields, {}, "stream_options.")
    return fields


def _object(body: bytes) -> dict[str, Any]:
    try:
        parsed = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"The body is not valid JSON: {shown(str(error))}", code="invalid_json") from error
    if not isinstance(parsed, dict):
        raise invalid("The body must be a JSON object", code="invalid_json")
    return parsed


def _message(message: object, place: str) -> object:
    if not isinstance(message, Mapping):
        return message  # its type is refused together with all others
    fields = taken(message, Message.model_fields, MESSAGE_OFF, f"{place}.")
    content = fields.get("content")
    if isinstance(content, list):
        _check_count(f"{place}.content", content, MAX_PARTS)
        fields["content"] = [_part(part, f"{place}.content[{index}].") for index, part in enumerate(content)]
    return fields


def _part(part: object, prefix: str) -> object:
    if not isinstance(part, Mapping):
        return part
    if part.get("type") != "text":  # what belongs to another type is not what is wrong with it
        return {name: value for name, value in part.items() if name in TextPart.model_fields}
    return taken(part, TextPart.model_fields, {}, prefix)


def _check_count(name: str, items: list[object], at_most: int) -> None:
    if len(items) > at_most:
        raise invalid(f"'{name}' holds {len(items)} items, at most {at_most} are taken", name, "invalid_value")


def _single_prompt(prompt: object) -> object:
    """A list with one prompt is that prompt; several prompts in one request are not supported."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise unsupported("prompt", "holds several prompts; send one request for each")
        return prompt[0]
    return prompt


def _validated(kind: type[Body], fields: dict[str, Any]) -> Body:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> ApiError:
    """The first broken rule; of the alternatives of one field the one that fits furthest."""
    details = error.errors(include_url=False)
    rule = details[0].get("ctx", {}).get("error")
    if isinstance(rule, BrokenRuleError):
        return invalid(str(rule), rule.param, "invalid_value")
    field = details[0]["loc"][:1]
    deepest = max((detail for detail in details if detail["loc"][:1] == field), key=lambda detail: len(_path(detail)))
    param = "".join(_path(deepest)).removeprefix(".")
    code = "missing_required_parameter" if deepest["type"] == "missing" else "invalid_value"
    return invalid(f"'{param}': {_reasons(details, deepest)}{_given(deepest)}", param, code)


def _path(detail: ErrorDetails) -> list[str]:
    """Steps to the value; pydantic also names the alternative of a union that it tried, which is no step."""
    field, *rest = detail["loc"]
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in rest if _is_step(step)]
    return [f".{field}", *steps]


def _is_step(step: int | str) -> bool:
    return isinstance(step, int) or step in _STEPS


def _reasons(details: list[ErrorDetails], chosen: ErrorDetails) -> str:
    path = _path(chosen)
    return " or ".join(dict.fromkeys(detail["msg"] for detail in details if _path(detail) == path))


def _given(detail: ErrorDetails) -> str:
    value = detail["input"]
    if detail["type"] == "missing" or not isinstance(value, bool | int | float | str):
        return ""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return ", got a larger number" if value > 0 else ", got a smaller number"
    return f", got {shown(value)!r}" if isinstance(value, str) else f", got {value!r}"
