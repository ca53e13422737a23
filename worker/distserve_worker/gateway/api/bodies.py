"""The bodies of the two generation endpoints and the rules for each field."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

# Every list has a bound or ends at its first fault: checking a body must cost no more than parsing it.
MAX_MESSAGES = 4096
MAX_PARTS = 1024  # of one message
MAX_STOP_STRINGS = 4
MAX_STOP_CHARACTERS = 1024
INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
StopList = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS, fail_fast=True)]
TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]
TokenCount = Annotated[int, Field(ge=1, le=INT32_MAX)]


def _as_list(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


class BrokenRuleError(ValueError):
    """A rule over several fields is broken; names the field to change."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class StreamOptions(_Checked):
    """Options of a streamed response."""

    include_usage: bool = False
    include_obfuscation: bool | None = None  # padding against traffic analysis: allowed, never sent


class TextPart(_Checked):
    """One part of a message; only text can be read."""

    type: Literal["text"]
    text: str


class Message(_Checked):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)]
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        """The message as chat templates know it: one text, and `system` for OpenAI's newer `developer`."""
        content = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": content, **named}


class GenerationBody(_Checked):
    """What chat and completions have in common."""

    model: str
    max_tokens: TokenCount | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=INT32_MAX)  # not in OpenAI's API; 0 and -1: all tokens
    seed: int | None = Field(default=None, ge=INT64_MIN, le=INT64_MAX)
    stop: Annotated[StopList | None, BeforeValidator(_as_list)] = None
    ignore_eos: bool | None = None  # not in OpenAI's API; for load tests that need an exact output length
    return_token_ids: bool | None = None  # not in OpenAI's API; the produced tokens beside their text
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _options_fit_the_stream(self) -> Self:
        if self.return_token_ids and self.stream:
            raise BrokenRuleError("return_token_ids", "'return_token_ids' is only allowed when 'stream' is false")
        if self.stream_options is not None and not self.stream:
            raise BrokenRuleError("stream_options", "'stream_options' is only allowed when 'stream' is true")
        return self

    @property
    def limit(self) -> tuple[int | None, str]:
        """The most tokens to produce, and the field that says so; absent limits stay absent."""
        return self.max_tokens, "max_tokens"


class ChatBody(GenerationBody):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: TokenCount | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise BrokenRuleError(
                "max_completion_tokens", "'max_tokens' and 'max_completion_tokens' differ; give one of them"
            )
        return self

    @property
    def limit(self) -> tuple[int | None, str]:
        """The most tokens to produce, and the field that says so; absent limits stay absent."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"


class CompletionBody(GenerationBody):
    """Body of `POST /v1/completions`: one prompt, as text or as token ids."""

    prompt: str | Annotated[list[TokenId], Field(fail_fast=True)]
