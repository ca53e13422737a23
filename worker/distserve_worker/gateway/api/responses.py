"""Bodies and chunks of generation responses; usage and stage times are the same whether streamed or not."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distserve_worker.gateway.answer import Answer, ChosenToken, Finish, Piece
from distserve_worker.gateway.api.bodies import GenerationBody
from distserve_worker.gateway.api.dialects import Content, Dialect
from distserve_worker.gateway.api.logprobs import Spelling, spelling
from distserve_worker.gateway.errors import Problem
from distserve_worker.gateway.generation import Generation
from distserve_worker.text.tokenizer import Tokenizer

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
    spelling: Spelling | None  # of tokens; None when no log probabilities are asked for

    @classmethod
    def of(
        cls, dialect: Dialect[Any], body: GenerationBody, generation: Generation, tokenizer: Tokenizer, created: int
    ) -> "ResponseWriter":
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
            spelling=None if body.told_logprobs is None else spelling(tokenizer),
        )

    def whole(self, answers: Sequence[Answer], pieces: Sequence[Piece]) -> dict[str, Any]:
        """The body of a response that is not streamed: each answer with all of its text."""
        choices = [
            self._choice(index, self.dialect.whole(piece.text), piece.chosen, piece.finish)
            | ({"token_ids": answer.tokens} if self.token_ids else {})
            for index, (answer, piece) in enumerate(zip(answers, pieces, strict=True))
        ]
        return self._envelope(self.dialect.whole_object, choices) | self._report(answers)

    def opening(self, index: int) -> bytes:
        """What the stream of an answer starts with, before any text."""
        opening = self.dialect.opening
        return b"" if opening is None else self._chunk(self._choice(index, opening))

    def piece(self, index: int, piece: Piece) -> bytes:
        """A chunk of text, nothing for no text, and one more when the answer ends."""
        told = piece.chosen if self.spelling is not None else ()
        grown = self._choice(index, self.dialect.piece(piece.text), told)
        chunk = self._chunk(grown) if piece.text or told else b""
        if piece.finish is None:
            return chunk
        return chunk + self._chunk(self._choice(index, self.dialect.ending, finish=piece.finish))

    def ending(self, answers: Sequence[Answer]) -> bytes:
        """The end of a stream in which every answer has ended well."""
        if not self.usage_in_stream:
            return DONE
        return event(self._envelope(self.dialect.chunk_object, []) | self._report(answers)) + DONE

    def _choice(
        self, index: int, content: Content, chosen: Sequence[ChosenToken] = (), finish: Finish | None = None
    ) -> dict[str, Any]:
        told = self.dialect.logprobs(chosen, self.spelling) if self.spelling is not None and chosen else None
        return {"index": index, **content, "logprobs": told, "finish_reason": finish}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        chunk = self._envelope(self.dialect.chunk_object, [choice])
        # OpenAI sends "usage": null in every other chunk once usage was asked for
        return event(chunk | {"usage": None} if self.usage_in_stream else chunk)

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.identifier, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices}

    def _report(self, answers: Sequence[Answer]) -> dict[str, Any]:
        produced = sum(len(answer.tokens) for answer in answers)
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": produced,
            "total_tokens": self.prompt_tokens + produced,
            # every choice asks for the same prompt; only what was there before all of them was saved
            "prompt_tokens_details": {"cached_tokens": min(answer.cached_tokens for answer in answers)},
        }
        return {"usage": usage, "distserve": _served(answers)}


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def error_event(problem: Problem) -> bytes:
    """An error after the first byte, as OpenAI sends it: the error object as an event, and no `[DONE]`."""
    return event(problem.body)


def _served(answers: Sequence[Answer]) -> dict[str, Any]:
    """Our own field: stage times in seconds, what was pulled over which transport, and who did it.

    Times and bytes of several choices add up; transport and workers are those of the first that has them.
    """
    times = [asdict(answer.stages) for answer in answers]
    return {
        "stages": {stage: sum(each[stage] for each in times) for stage in times[0]},
        "kv_bytes": sum(answer.kv_bytes for answer in answers),
        "transport": _first(answer.transport for answer in answers),
        "prefill_worker": _first(answer.prefill_worker for answer in answers),
        "decode_worker": _first(answer.decode_worker for answer in answers),
    }


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value is not None), None)
