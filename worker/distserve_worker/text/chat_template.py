"""Renders a conversation into the model's prompt with the model's own Jinja template, in a sandbox.

Control tokens that a client writes into a message become control tokens of the prompt, exactly as with the model's
reference tokenizer: templates and text are one string before tokenizing, and output must equal the reference.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateRefusedError(ValueError):
    """The template cannot render this conversation; the text is the template's own reason."""


class InvalidTemplateError(ValueError):
    """The model's template is no valid Jinja."""


class _Generation(Extension):
    """`{% generation %}` marks the assistant's part for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own interface

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template with the model's BOS and EOS texts."""

    __slots__ = ("_template", "_tokens")

    def __init__(self, source: str, bos_token: str, eos_token: str) -> None:
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InvalidTemplateError(f"chat template, line {error.lineno}: {error.message}") from error

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt up to where the assistant's answer begins. Raises `TemplateRefusedError`."""
        try:
            # as the reference does: templates ask whether tools are none, which what is undefined is not
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._tokens
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise TemplateRefusedError(str(error)) from error


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(value: object, indent: int | None = None) -> str:
    # Jinja's own filter escapes HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusedError(message)


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)
