"""Bodies and chunks of generation responses; usage and stage times are the same whether streamed or not."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from distserve_worker.gateway.answer import Answer
from distserve_worker.gateway.api.bodies import GenerationBody
from distserve_worker.gateway.api.dialects import Choice, Dialect
from distserve_worker.gateway.errors import Problem
from distserve_worker.gateway.generation import Generation

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class ResponseWriter:
    """Writes everything that one request is answered with."""

    dialect: Dialect[Any]
    identifier: str
    created: int
    model: str
    prompt_tokens: int
    usage_in_stream: bool
    token_ids: bool

    @classmethod
    def of(cls, dialect: Dialect[Any], body: GenerationBody, generation: Generation, created: int) -> "ResponseWriter":
        """The writer for a request; its id in the body is the one in `x-request-id` with the endpoint's prefix."""
        options = body.stream_options
        return cls(
            dialect=dialect,
            identifier=f"{dialect.id_prefix}-{generation.request_id}",
            created=created,
            model=body.model,
            prompt_tokens=len(generation.prompt),
            usage_in_stream=options is not None and options.include_usage,
            token_ids=bool(body.return_token_ids),
        )

    def whole(self, answer: Answer, text: str) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        assert answer.finish is not None, "only finished answers are sent whole"
        choice = self.dialect.whole(text, answer.finish)
        if self.token_ids:
            choice["token_ids"] = answer.tokens
        return self._envelope(self.dialect.whole_object, [choice]) | self._report(answer)

    def opening(self) -> bytes:
        """What a stream starts with, before any text."""
        return b"".join(self._chunk(choice) for choice in self.dialect.opening)

    def piece(self, text: str) -> bytes:
        """A chunk of text; nothing for no text."""
        return self._chunk(self.dialect.piece(text)) if text else b""

    def ending(self, answer: Answer) -> bytes:
        """The last chunks of a stream that ended well."""
        assert answer.finish is not None, "only finished answers have an ending"
        last = self._chunk(self.dialect.ending(answer.finish))
        if not self.usage_in_stream:
            return last + DONE
        usage = self._envelope(self.dialect.chunk_object, []) | self._report(answer)
        return last + event(usage) + DONE

    def _chunk(self, choice: Choice) -> bytes:
        chunk = self._envelope(self.dialect.chunk_object, [choice])
        # OpenAI sends "usage": null in every other chunk once usage was asked for
        return event(chunk | {"usage": None} if self.usage_in_stream else chunk)

    def _envelope(self, kind: str, choices: list[Choice]) -> dict[str, Any]:
        head = {"id": self.identifier, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices}

    def _report(self, answer: Answer) -> dict[str, Any]:
        produced = len(answer.tokens)
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": produced,
            "total_tokens": self.prompt_tokens + produced,
        }
        return {"usage": usage, "distserve": _served(answer)}


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def error_event(problem: Problem) -> bytes:
    """An error after the first byte, as OpenAI sends it: the error object as an event, and no `[DONE]`."""
    return event(problem.body)


def _served(answer: Answer) -> dict[str, Any]:
    """Our own field: stage times in seconds, what was pulled over which transport, and who did it."""
    return {
        "stages": asdict(answer.stages),
        "kv_bytes": answer.kv_bytes,
        "transport": answer.transport,
        "prefill_worker": answer.prefill_worker,
        "decode_worker": answer.decode_worker,
    }
