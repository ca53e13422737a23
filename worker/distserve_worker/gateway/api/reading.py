"""Parses a request body and turns whatever is wrong with it into one OpenAI error that names the field."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from distserve_worker.gateway.api.bodies import BrokenRuleError, ChatBody, CompletionBody, GenerationBody, Message
from distserve_worker.gateway.api.fields import MESSAGE_OFF, OFF, taken
from distserve_worker.gateway.errors import ApiError, invalid, unsupported

Body = TypeVar("Body", bound=GenerationBody)

_NESTED = frozenset({"text", "type", "include_usage", "include_obfuscation"})
_SHOWN_CHARACTERS = 40


def read_chat(body: bytes) -> ChatBody:
    """Parse and check a chat body. Raises `ApiError` (400) naming the field."""
    fields = taken(_object(body), ChatBody.model_fields, OFF)
    messages = fields.get("messages")
    if isinstance(messages, list):
        fields["messages"] = [_message(message, index) for index, message in enumerate(messages)]
    return _validated(ChatBody, fields)


def read_completion(body: bytes) -> CompletionBody:
    """Parse and check a completions body. Raises `ApiError` (400) naming the field."""
    fields = taken(_object(body), CompletionBody.model_fields, OFF)
    if "prompt" in fields:
        fields["prompt"] = _single_prompt(fields["prompt"])
    return _validated(CompletionBody, fields)


def _object(body: bytes) -> dict[str, Any]:
    try:
        parsed = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"The body is not valid JSON: {error}", code="invalid_json") from error
    if not isinstance(parsed, dict):
        raise invalid("The body must be a JSON object", code="invalid_json")
    return parsed


def _message(message: object, index: int) -> object:
    if not isinstance(message, Mapping):
        return message  # its type is refused together with all others
    return taken(message, Message.model_fields, MESSAGE_OFF, f"messages[{index}].")


def _single_prompt(prompt: object) -> object:
    """A list with one prompt is that prompt; several prompts in one request are not supported."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise unsupported("prompt", "holds several prompts; send one request for each")
        return prompt[0]
    if isinstance(prompt, list):
        _require_token_ids(prompt)
    return prompt


def _require_token_ids(prompt: list[object]) -> None:
    """Stops at the first wrong item, where pydantic would describe each of a million."""
    for index, item in enumerate(prompt):
        if type(item) is not int or item < 0:
            raise invalid(f"'prompt[{index}]': token ids are integers from 0 on", f"prompt[{index}]", "invalid_value")


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
    return isinstance(step, int) or step in Message.model_fields or step in _NESTED


def _reasons(details: list[ErrorDetails], chosen: ErrorDetails) -> str:
    path = _path(chosen)
    return " or ".join(dict.fromkeys(detail["msg"] for detail in details if _path(detail) == path))


def _given(detail: ErrorDetails) -> str:
    value = detail["input"]
    short = isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _SHOWN_CHARACTERS)
    return f", got {value!r}" if short and detail["type"] != "missing" else ""
