"""The bodies of the two generation endpoints and the rules for each field."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distserve_worker.gateway.api.checked import BrokenRuleError, Checked, TokenCount, TokenId
from distserve_worker.gateway.api.sampling_body import Logprobs, SamplingBody

MAX_MESSAGES = 4096
MAX_PARTS = 1024  # of one message


class StreamOptions(Checked):
    """Options of a streamed response."""

    include_usage: bool = False
    include_obfuscation: bool | None = None  # padding against traffic analysis: allowed, never sent


class TextPart(Checked):
    """One part of a message; only text can be read."""

    type: Literal["text"]
    text: str


class Message(Checked):
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


class GenerationBody(SamplingBody):
    """What chat and completions have in common."""

    model: str
    max_tokens: TokenCount | None = None
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

    @model_validator(mode="after")
    def _least_fits_the_most(self) -> Self:
        most, name = self.limit
        if most is not None and (self.min_tokens or 0) > most:
            message = f"'min_tokens' must be at most '{name}', which is {most}, got {self.min_tokens}"
            raise BrokenRuleError("min_tokens", message)
        return self

    @property
    def limit(self) -> tuple[int | None, str]:
        """The most tokens to produce, and the field that says so; absent limits stay absent."""
        return self.max_tokens, "max_tokens"


class ChatBody(GenerationBody):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise BrokenRuleError(
                "max_completion_tokens", "'max_tokens' and 'max_completion_tokens' differ; give one of them"
            )
        return self

    @model_validator(mode="after")
    def _top_needs_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise BrokenRuleError("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true")
        return self

    @property
    def told_logprobs(self) -> int | None:
        """See `SamplingBody.told_logprobs`."""
        return self.top_logprobs or 0 if self.logprobs else None

    @property
    def limit(self) -> tuple[int | None, str]:
        """The most tokens to produce, and the field that says so; absent limits stay absent."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"


class CompletionBody(GenerationBody):
    """Body of `POST /v1/completions`: one prompt, as text or as token ids."""

    prompt: str | Annotated[list[TokenId], Field(fail_fast=True)]
    logprobs: Logprobs | None = None

    @property
    def told_logprobs(self) -> int | None:
        """See `SamplingBody.told_logprobs`."""
        return self.logprobs
