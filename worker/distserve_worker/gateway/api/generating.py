"""The one path of every generation request: chat or completions, streamed or not, they obey the same limits."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from distserve_worker.gateway import errors
from distserve_worker.gateway.admission import Admission, Place
from distserve_worker.gateway.answer import Answer, Piece
from distserve_worker.gateway.api.bodies import GenerationBody
from distserve_worker.gateway.api.dialects import Dialect
from distserve_worker.gateway.api.measuring import CLIENT_GONE, Stopwatch
from distserve_worker.gateway.api.prefix_salt import salt_of
from distserve_worker.gateway.api.preparing import generations, prompt_tokens
from distserve_worker.gateway.api.producing import pieces, unless_gone
from distserve_worker.gateway.api.receiving import BodyLimits, ClientGoneError, read_body
from distserve_worker.gateway.api.responses import ResponseWriter, error_event
from distserve_worker.gateway.api.sending import Reply
from distserve_worker.gateway.errors import ApiError, Problem
from distserve_worker.gateway.generation import Generation
from distserve_worker.gateway.readiness import Readiness
from distserve_worker.gateway.running import Runner
from distserve_worker.text.stop_strings import StopStrings
from distserve_worker.text.tokenizer import ModelText

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What all generation requests share."""

    model: str
    readiness: Readiness
    admission: Admission
    limits: BodyLimits
    runner: Runner
    isolate_prefixes: bool  # share no KV of prompts among API keys


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a client and what it is answered with."""

    request_id: str
    receive: Receive
    reply: Reply
    stopwatch: Stopwatch
    prefix_salt: str


class GenerationEndpoint:
    """The ASGI application of one generation endpoint."""

    def __init__(self, dialect: Dialect[Any], service: Service) -> None:
        self._dialect = dialect
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; every way it can end is an HTTP status or an event in the stream."""
        request_id: str = scope["state"]["request_id"]
        stopwatch = Stopwatch(self._dialect.endpoint, request_id, self._service.runner.metrics)
        salt = salt_of(scope["headers"]) if self._service.isolate_prefixes else ""
        exchange = Exchange(request_id, receive, Reply(send), stopwatch, salt)
        code = CLIENT_GONE
        try:
            code = await self._handle(scope, exchange)
        except ClientGoneError:
            log.debug("request %s: the client is gone", request_id)
        finally:
            stopwatch.ended(code)

    async def _handle(self, scope: Scope, exchange: Exchange) -> int:
        """Answer or say what is wrong; returns the status, also of an error that comes after the first byte."""
        try:
            with self._service.admission.place() as place:
                body = await self._read(scope, exchange, place)
                await unless_gone(exchange.receive, self._answer(body, exchange))
        except ApiError as error:
            problem = error.problem
        except ClientGoneError:
            raise
        except asyncio.CancelledError:  # only the server cancels, when the time to drain is over
            problem = errors.unavailable("The gateway is shutting down", "shutting_down").problem
        except Exception:
            log.exception("request %s failed", exchange.request_id)
            problem = errors.internal().problem
        else:
            return exchange.reply.status
        await _tell(exchange.reply, problem)
        return problem.status

    async def _read(self, scope: Scope, exchange: Exchange, place: Place) -> GenerationBody:
        """The checked body; its bytes are let go here, before an answer that may take minutes."""
        raw = await read_body(scope, exchange.receive, self._service.limits, place.grow)
        body: GenerationBody = self._dialect.read(raw)
        place.widen(body.choices)
        return body

    async def _answer(self, body: GenerationBody, exchange: Exchange) -> None:
        text = self._service.readiness.text
        if body.model != self._service.model:
            raise errors.model_not_found(body.model)
        jobs = await self._prepare(body, text, exchange)
        writer = ResponseWriter.of(self._dialect, body, jobs[0], text.tokenizer, int(time.time()))
        changed, begun = asyncio.Event(), asyncio.Event()
        answers = [_answer_to(job, index, text, exchange, (changed, begun)) for index, job in enumerate(jobs)]
        runs = [self._run(index, jobs[index], answer, begun) for index, answer in enumerate(answers)]
        async with aclosing(pieces(runs, answers, changed)) as produced:
            send = _stream if body.stream else _whole
            await send(produced, writer, answers, exchange.reply)
        exchange.stopwatch.answered(len(jobs[0].prompt), answers)

    async def _run(self, index: int, job: Generation, answer: Answer, begun: asyncio.Event) -> None:
        """The first answer; others wait for its first token.

        So a prompt that ends the workers that compute it ends no more of them for being asked several times.
        """
        if index > 0:
            await begun.wait()
        await self._service.runner.run(job, answer, begun=index > 0)

    async def _prepare(self, body: GenerationBody, text: ModelText, exchange: Exchange) -> tuple[Generation, ...]:
        longest = self._service.runner.fleet.longest_request()
        if longest is None:
            raise self._service.runner.no_pair()
        prompt = await asyncio.to_thread(prompt_tokens, self._dialect, body, text, longest)
        return generations(exchange.request_id, body, prompt, text.tokenizer, exchange.prefix_salt)


def _answer_to(
    job: Generation, index: int, text: ModelText, exchange: Exchange, grows: Sequence[asyncio.Event]
) -> Answer:
    def grown() -> None:
        exchange.stopwatch.token(index)
        for event in grows:
            event.set()

    stops = StopStrings(job.stop_strings)
    return Answer(text.tokenizer.detokenizer(), stops, grown, job.sampling.min_tokens)


async def _stream(
    produced: AsyncIterator[tuple[int, Piece]], writer: ResponseWriter, answers: Sequence[Answer], reply: Reply
) -> None:
    """The first token of an answer brings its first bytes, even when it completes no text yet."""
    opened: set[int] = set()
    async for index, piece in produced:
        opening = b"" if index in opened else writer.opening(index)
        opened.add(index)
        await reply.stream(opening + writer.piece(index, piece))
    await reply.end_stream(writer.ending(answers))


async def _whole(
    produced: AsyncIterator[tuple[int, Piece]], writer: ResponseWriter, answers: Sequence[Answer], reply: Reply
) -> None:
    parts: list[list[Piece]] = [[] for _ in answers]
    async for index, piece in produced:
        parts[index].append(piece)
    await reply.json(200, writer.whole(answers, [Piece.joined(part) for part in parts]))


async def _tell(reply: Reply, problem: Problem) -> None:
    if reply.started:
        await reply.end_stream(error_event(problem))
    else:
        await reply.problem(problem)
